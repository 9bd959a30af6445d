#!/bin/sh
# What the tests here need of Debian: the daemons of Slurm, munge, PMIx, and shellcheck.  Without root or without the
# archive nothing is installed, and the tests skip with the reason.
missing=
for tool in slurmctld slurmd sbatch munged ip shellcheck; do
    command -v "$tool" >/dev/null || missing="$missing $tool"
done
[ -z "$missing" ] && exit
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "missing:$missing; as root on Debian they would be installed"
    exit
fi
export DEBIAN_FRONTEND=noninteractive
if ! { apt-get -qq update && apt-get -qq install --no-install-recommends slurm-wlm munge libpmix2 iproute2 shellcheck; } \
    >/dev/null 2>&1; then
    echo "missing:$missing; apt-get cannot install them here"
fi
