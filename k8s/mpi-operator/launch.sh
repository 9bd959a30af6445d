#!/bin/bash
# The launcher of an MPIJob: trains CONFIG into the run directory RUN on every slot of the operator's hostfile.
#   mpies-launch RUN CONFIG [KEY=VALUE ...]
# Exit code 0 means that RUN is complete.  Anything else makes Kubernetes start the launcher again, up to the job's
# backoffLimit, and the run goes on where it stopped: 75 after a signal, 2 for a mistake in the config.
#   MPIES_LOG=json       a JSON object a line, as the log of the cloud reads them; else text
#   MPIES_MPIRUN         further options for mpirun, such as --with-ft ulfm
#   MPIES_WAIT           seconds that all workers have to come up, default 600
set -uo pipefail
if [ $# -lt 2 ]; then
    echo "usage: mpies-launch RUN CONFIG [KEY=VALUE ...]" >&2
    exit 2
fi
run=$1 config=$2
shift 2
# Open MPI 5 ignores the variables that the operator sets for version 4: without this one it would start
# all ranks here, beside the launcher.
export PRTE_MCA_prte_default_hostfile=${PRTE_MCA_prte_default_hostfile:-/etc/mpi/hostfile}
export PRTE_MCA_plm_ssh_args=${PRTE_MCA_plm_ssh_args:--o ConnectionAttempts=10}
# A node that vanishes without a word must end the job: by default nobody would ask for it.
export PRTE_MCA_oob_tcp_keepalive_time=3 PRTE_MCA_oob_tcp_keepalive_intvl=1 PRTE_MCA_oob_tcp_keepalive_probes=3

say() { # SEVERITY MESSAGE
    if [ "${MPIES_LOG:-}" = json ]; then
        printf '{"severity": "%s", "message": "%s"}\n' "$1" "$2"
    else
        printf '%s launcher: %s\n' "$1" "$2"
    fi
}

# A file of the same name that is another than before has another inode or time.
identify() { stat -c %i,%y "$run/finished.yaml" 2>/dev/null; }

hosts=$(grep -c . "$PRTE_MCA_prte_default_hostfile") || {
    say ERROR "$PRTE_MCA_prte_default_hostfile names no hosts; the MPI Operator writes it for the launcher of an MPIJob"
    exit 2
}
slots=$(($(sed 's/.*slots=//' "$PRTE_MCA_prte_default_hostfile" | paste -sd+)))

# mpirun gives its ranks half a second after a SIGTERM, but hands them a SIGUSR1, wherever they are.
child='' stopped=''
trap 'stopped=yes; [ -z "$child" ] || kill -USR1 "$child"' TERM INT

# What mpirun keeps in /tmp outlives it when it is killed, a pod's /tmp outlives its containers, and an mpirun or prted
# that gets the number of a dead one finds its folder and gives up ("listener thread failed to start").
# shellcheck disable=SC2016  # for each host to expand
sweep='for left in "${TMPDIR:-/tmp}"/ompi.*; do [ -e "/proc/${left##*.}" ] || rm -rf "$left"; done'
bash -c "$sweep"
# shellcheck disable=SC2016  # each host says its own name
answer='echo "host=$HOSTNAME"'

# Every host must answer: mpirun itself would be content with fewer, as with a hostfile it does not see.
deadline=$((SECONDS + ${MPIES_WAIT:-600}))
while :; do
    answers=$(timeout 60 mpirun --bind-to none --map-by ppr:1:node bash -c "$sweep; $answer" 2>&1 | tr -d '\0')
    found=$(grep -o 'host=[a-z0-9.-]*' <<<"$answers" | sort -u | grep -c .)
    [ "$found" -eq "$hosts" ] && break
    [ -n "$stopped" ] && exit 75
    if [ "$SECONDS" -ge "$deadline" ]; then
        say ERROR "$found of $hosts hosts answered within ${MPIES_WAIT:-600} s; what mpirun says follows"
        echo "$answers"
        exit 1
    fi
    say WARNING "$found of $hosts hosts answer; waiting for the others"
    sleep 2
done

before=$(identify)
say INFO "$slots ranks on $hosts hosts train $config into $run"
# shellcheck disable=SC2086  # options are words
mpirun -n "$slots" --bind-to none ${MPIES_LOG:+-x MPIES_LOG} ${MPIES_MPIRUN:-} \
    mpies train "$config" --out "$run" --resume auto "$@" &
child=$!
while :; do
    wait "$child"
    code=$?
    kill -0 "$child" 2>/dev/null || break # else it was a signal to this script that ended the waiting
done

echo # mpirun may end with NULs and no newline, and what follows must be a line of its own
after=$(identify)
if [ -n "$after" ] && [ "$after" != "$before" ]; then
    say INFO "$run is complete"
    exit 0
fi
[ -n "$stopped" ] && code=75
[ "$code" -eq 0 ] && code=1 # mpirun says 0 after the loss of a node as well
say WARNING "$run is not complete (mpirun: $code); it goes on with the next launcher"
exit "$code"
