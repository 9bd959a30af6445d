#!/bin/sh
# install.sh NAME...: install what `make test-NAME` needs of Debian: slurm, k8s, nodes.  Only root can do it, and only
# with the archive; the tests skip what they cannot have.
tools='' packages=''
for name in "$@"; do
    case $name in
    slurm)  # daemons of Slurm and munge, PMIx
        tools="$tools slurmctld slurmd sbatch munged ip shellcheck"
        packages="$packages slurm-wlm munge libpmix2 iproute2 shellcheck" ;;
    k8s)  # what builds and runs images without a daemon
        tools="$tools buildah podman crun conmon newuidmap mmdebstrap ssh-keygen ip"
        packages="$packages buildah podman crun conmon uidmap mmdebstrap openssh-client iproute2" ;;
    nodes)
        tools="$tools sshd ssh ip"
        packages="$packages openssh-server openssh-client iproute2" ;;
    *)
        echo "install.sh: expected slurm, k8s or nodes, not $name" >&2
        exit 2 ;;
    esac
done
missing=
for tool in $tools; do
    command -v "$tool" >/dev/null || missing="$missing $tool"
done
[ -z "$missing" ] && exit
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "missing:$missing; as root on Debian: apt-get install --no-install-recommends$packages"
    exit
fi
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086  # packages are words
if ! { apt-get -qq update && apt-get -qq install --no-install-recommends $packages; } >/dev/null 2>&1; then
    echo "missing:$missing; apt-get cannot install them here"
fi
