#!/bin/sh
# What `make test-k8s` needs of Debian: tools that build and run images without a daemon.  Only root can install it;
# the tests skip what they cannot have.
packages="buildah podman crun conmon uidmap mmdebstrap openssh-client iproute2"
for tool in buildah podman crun conmon newuidmap mmdebstrap ssh-keygen ip; do
    command -v "$tool" >/dev/null || missing="${missing:-} $tool"
done
[ -z "${missing:-}" ] && exit 0
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "missing:$missing; as root on Debian: apt-get install --no-install-recommends $packages"
    exit 0
fi
# shellcheck disable=SC2086  # packages are words
{ apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $packages; } \
    >/tmp/mpies-k8s-apt.log 2>&1 || echo "apt-get could not install$missing; see /tmp/mpies-k8s-apt.log"
