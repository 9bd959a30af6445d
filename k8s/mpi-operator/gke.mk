# From nothing to a finished run on Google Kubernetes Engine: docs/gke.md.  Every command is printed before it runs.
PROJECT ?= $(shell gcloud config get-value project 2>/dev/null)
ZONE ?= us-central1-a
CLUSTER ?= mpies
OVERLAY ?= gke-bipedal-hardcore
NODES ?= 17
MACHINE ?= n1-standard-64
SPOT ?=
PRICE ?=
CONSTANTS ?=
TAG ?= $(shell git describe --always --dirty=-$$(git diff HEAD | sha1sum | cut -c1-8))
GKE_BUILD ?= build
REGION = $(shell echo $(ZONE) | sed 's/-[a-z]$$//')
REGISTRY = $(REGION)-docker.pkg.dev
IMAGE ?= $(REGISTRY)/$(PROJECT)/mpies/mpies:$(TAG)
IMAGE_TAG = $(or $(word 2,$(subst :, ,$(notdir $(IMAGE)))),latest)
CONTEXT = gke_$(PROJECT)_$(ZONE)_$(CLUSTER)
CONTAINER ?= $(shell for c in docker podman buildah; do command -v $$c && break; done)
OPERATOR_VERSION ?= v0.8.2
OPERATOR := k8s/mpi-operator
OPERATOR_URL = https://raw.githubusercontent.com/kubeflow/mpi-operator/$(OPERATOR_VERSION)/deploy/v2beta1/mpi-operator.yaml

.PHONY: image gke-cost gke-cluster gke-manifests gke-train gke-delete gke-left

image: ## build the image of the MPIJob (IMAGE, CONTAINER=docker|podman|buildah, IMAGE_FLAGS)
	$(CONTAINER) build --tag $(IMAGE) --file $(OPERATOR)/Dockerfile $(IMAGE_FLAGS) .

gke-cost: install ## say what CONFIG costs on RANKS (CONSTANTS of mpies bench, PRICE of a core hour)
	$(BIN)/mpies simulate $(CONFIG) --ranks $(RANKS) $(if $(CONSTANTS),--constants $(CONSTANTS)) $(if $(PRICE),--price $(PRICE))

# The workers' pool has no machine until a run asks for some, and none again about ten minutes after it.  Only workers
# tolerate its taint: launcher, dashboard and the cluster's own pods would keep machines alive.
gke-cluster: $(if $(PRICE),gke-cost) ## make a cluster on GKE with the MPI Operator (PROJECT, ZONE, CLUSTER, NODES, MACHINE, SPOT=1)
	gcloud services enable container.googleapis.com file.googleapis.com artifactregistry.googleapis.com --project $(PROJECT)
	gcloud artifacts repositories create mpies --repository-format docker --location $(REGION) --project $(PROJECT) || true
	gcloud auth configure-docker $(REGISTRY) --quiet
	gcloud container clusters create $(CLUSTER) --project $(PROJECT) --zone $(ZONE) \
		--machine-type e2-standard-4 --num-nodes 1 --enable-dataplane-v2 --enable-ip-alias \
		--workload-pool $(PROJECT).svc.id.goog --addons GcpFilestoreCsiDriver,GcsFuseCsiDriver
	gcloud container node-pools create workers --cluster $(CLUSTER) --project $(PROJECT) --zone $(ZONE) \
		--machine-type $(MACHINE) --num-nodes 0 --enable-autoscaling --min-nodes 0 --max-nodes $(NODES) \
		--node-taints mpies-workers=true:NoSchedule $(if $(SPOT),--spot)
	gcloud container clusters get-credentials $(CLUSTER) --project $(PROJECT) --zone $(ZONE)
	kubectl apply --server-side -f $(OPERATOR_URL)
	kubectl wait --namespace mpi-operator --for condition=Available deployment/mpi-operator --timeout 300s

gke-manifests: ## write OVERLAY with IMAGE in it to build/gke.yaml
	mkdir -p $(GKE_BUILD)/gke
	printf '%s\n' "resources: [$$(realpath --relative-to $(GKE_BUILD)/gke $(OPERATOR)/overlays/$(OVERLAY))]" \
		'images: [{name: mpies, newName: $(IMAGE:%:$(IMAGE_TAG)=%), newTag: "$(IMAGE_TAG)"}]' \
		> $(GKE_BUILD)/gke/kustomization.yaml
	kubectl kustomize $(GKE_BUILD)/gke > $(GKE_BUILD)/gke.yaml

gke-train: gke-manifests ## push the image and start OVERLAY on the cluster, or continue its run
	$(CONTAINER) push $(IMAGE)
	kubectl --context $(CONTEXT) delete mpijob mpies --ignore-not-found
	kubectl --context $(CONTEXT) apply -f $(GKE_BUILD)/gke.yaml

# The volume's share is deleted by the cluster's own driver, so the cluster must outlive it.  The context is named: kubectl
# may be looking at another cluster.  Where the cluster is gone already, the rest is removed all the same.
gke-delete: gke-manifests ## end the run, delete cluster and images WITH all runs: copy them first (docs/gke.md)
	if gcloud container clusters describe $(CLUSTER) --project $(PROJECT) --zone $(ZONE) >/dev/null 2>&1; then \
		gcloud container clusters get-credentials $(CLUSTER) --project $(PROJECT) --zone $(ZONE) \
		&& { kubectl --context $(CONTEXT) delete mpijob --all --ignore-not-found --timeout=300s || true; } \
		&& { kubectl --context $(CONTEXT) delete -f $(GKE_BUILD)/gke.yaml --ignore-not-found --timeout=900s || true; } \
		&& kubectl --context $(CONTEXT) get persistentvolumes --output name \
			| xargs -r kubectl --context $(CONTEXT) wait --for=delete --timeout=900s \
		&& gcloud container clusters delete $(CLUSTER) --project $(PROJECT) --zone $(ZONE); \
	fi
	if gcloud artifacts repositories describe mpies --location $(REGION) --project $(PROJECT) >/dev/null 2>&1; then \
		gcloud artifacts repositories delete mpies --location $(REGION) --project $(PROJECT); \
	fi
	$(MAKE) gke-left

gke-left: ## list what of PROJECT still costs money: clusters, machines, disks, Filestore, images, buckets
	gcloud container clusters list --project $(PROJECT)
	gcloud compute instances list --project $(PROJECT)
	gcloud compute disks list --project $(PROJECT)
	gcloud filestore instances list --project $(PROJECT)
	gcloud artifacts repositories list --project $(PROJECT)
	gcloud storage buckets list --project $(PROJECT) --format 'value(name)'
