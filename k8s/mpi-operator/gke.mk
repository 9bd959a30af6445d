# From nothing to a finished run on Google Kubernetes Engine: docs/gke.md.  Every command is printed before it runs.
PROJECT ?= $(shell gcloud config get-value project 2>/dev/null)
ZONE ?= us-central1-a
CLUSTER ?= mpies
OVERLAY ?= gke-bipedal-hardcore
NODES ?= 17
MACHINE ?= n1-standard-64
SPOT ?=
TAG ?= $(shell git describe --always --dirty)
REGION = $(shell echo $(ZONE) | sed 's/-[a-z]$$//')
REGISTRY = $(REGION)-docker.pkg.dev
IMAGE ?= $(REGISTRY)/$(PROJECT)/mpies/mpies:$(TAG)
CONTAINER ?= $(shell for c in docker podman buildah; do command -v $$c && break; done)
OPERATOR_VERSION ?= v0.8.2
OPERATOR := k8s/mpi-operator
OPERATOR_URL = https://raw.githubusercontent.com/kubeflow/mpi-operator/$(OPERATOR_VERSION)/deploy/v2beta1/mpi-operator.yaml

.PHONY: image gke-cluster gke-manifests gke-train gke-delete

image: ## build the image of the MPIJob (IMAGE, CONTAINER=docker|podman|buildah, IMAGE_FLAGS)
	$(CONTAINER) build --tag $(IMAGE) --file $(OPERATOR)/Dockerfile $(IMAGE_FLAGS) .

gke-cluster: ## make a cluster on GKE with the MPI Operator (PROJECT, ZONE, CLUSTER, NODES, MACHINE, SPOT=1)
	gcloud services enable container.googleapis.com file.googleapis.com artifactregistry.googleapis.com --project $(PROJECT)
	gcloud artifacts repositories create mpies --repository-format docker --location $(REGION) --project $(PROJECT) || true
	gcloud auth configure-docker $(REGISTRY) --quiet
	gcloud container clusters create $(CLUSTER) --project $(PROJECT) --zone $(ZONE) \
		--machine-type e2-standard-4 --num-nodes 1 --enable-dataplane-v2 --enable-ip-alias \
		--workload-pool $(PROJECT).svc.id.goog --addons GcpFilestoreCsiDriver,GcsFuseCsiDriver
	gcloud container node-pools create workers --cluster $(CLUSTER) --project $(PROJECT) --zone $(ZONE) \
		--machine-type $(MACHINE) --num-nodes $(NODES) $(if $(SPOT),--spot)
	gcloud container clusters get-credentials $(CLUSTER) --project $(PROJECT) --zone $(ZONE)
	kubectl apply --server-side -f $(OPERATOR_URL)
	kubectl wait --namespace mpi-operator --for condition=Available deployment/mpi-operator --timeout 300s

gke-manifests: ## write OVERLAY with IMAGE in it to build/gke.yaml
	mkdir -p build/gke
	printf '%s\n' 'resources: [../../$(OPERATOR)/overlays/$(OVERLAY)]' \
		'images: [{name: mpies, newName: $(firstword $(subst :, ,$(IMAGE))), newTag: "$(lastword $(subst :, ,$(IMAGE)))"}]' \
		> build/gke/kustomization.yaml
	kubectl kustomize build/gke > build/gke.yaml

gke-train: gke-manifests ## push the image and start OVERLAY on the cluster, or go on with its run
	$(CONTAINER) push $(IMAGE)
	kubectl delete mpijob mpies --ignore-not-found
	kubectl apply -f build/gke.yaml

gke-delete: gke-manifests ## end the run, and delete the cluster WITH all runs: copy them first (docs/gke.md)
	kubectl delete -f build/gke.yaml --ignore-not-found
	kubectl wait --for=delete persistentvolumeclaim/mpies-runs --timeout=600s
	gcloud container clusters delete $(CLUSTER) --project $(PROJECT) --zone $(ZONE)
