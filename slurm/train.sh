# shellcheck shell=bash
# What the batch scripts beside this file share: `train CONFIG [KEY=VALUE ...]` on the ranks of a Slurm job, and
# `sweep CONFIG [KEY=V1,V2 ...] [options of mpies sweep]`.
#
# `mpies train --hosts slurm` starts the ranks, and continues inside the job on the remaining nodes if one is lost.
# What the time limit, a signal or too few nodes break off (exit code 75) goes back into the queue.  Where the site
# forbids that, or ends what it preempts, the job submits one that continues after it.

# Set these before sbatch, which hands them on, or change them here.
: "${MPIES_MODULES:=}"         # modules to load, such as "gcc openmpi"
: "${MPIES_VENV:=${slurm:+$slurm/../.venv}}" # virtual environment; where there is none, what is on the path
: "${MPIES_IMAGE:=}"           # Apptainer image to run in, in place of the virtual environment
: "${MPIES_LAUNCHER:=auto}"    # auto (the first that works), srun, srun:pmix, srun:pmi2 or mpirun
: "${MPIES_MPIRUN:=}"          # further options of mpirun
: "${MPIES_RUN:=}"             # run directory; default runs/NAME-OF-CONFIG, with the overrides in its name;
                               # of a sweep its folder, default runs/NAME-OF-CONFIG_sweep, with the keys
: "${MPIES_RESTARTS:=20}"      # how many times ranks that ended unexpectedly are started again
: "${MPIES_MIN_RANKS:=1}"      # with fewer ranks than this on the nodes that are left, the job goes back into the queue
: "${MPIES_SUCCESSORS:=20}"     # how many jobs may follow one after the other where the site forbids to requeue
# sbatch itself reads SBATCH_ACCOUNT, SBATCH_PARTITION, SBATCH_QOS, SBATCH_TIMELIMIT and the like.

# One task of an array has the number of the whole array, which is not what is meant.
job=$SLURM_JOB_ID
[ -n "${SLURM_ARRAY_JOB_ID:-}" ] && job=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID
command=train # of mpies, or sweep
inside=() # what a command must be started with to find mpies
run=      # the run directory, or the folder of the sweep
child=    # the process to hand signals to
stopped=  # the signal that this script was sent
successor= # the job that continues after this one
arguments=("$@") # of the batch script

say() { echo "$(date +%FT%T) job $job: $*"; }

prepare() { # make mpies, its Python and its MPI found
    if [ -n "$MPIES_MODULES" ]; then
        # shellcheck disable=SC2086  # names are words
        module load $MPIES_MODULES
    fi
    if [ -n "$MPIES_IMAGE" ]; then
        inside=(apptainer exec "$MPIES_IMAGE")
    elif [ -x "$MPIES_VENV/bin/mpies" ]; then
        PATH=$(cd "$MPIES_VENV/bin" && pwd):$PATH
    fi
    export PATH MPIES_MPIRUN OMP_NUM_THREADS=1 PYTHONSAFEPATH=1 PYTHONUNBUFFERED=1
    export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1} # srun does not take it over from sbatch
}

run_of() { # the run directory that mpies gives a config and its overrides, or the folder of a sweep and its keys
    "${inside[@]}" python3 -c '
import sys
from mpies.runs.files import default_out
command, config, *words = sys.argv[1:]
given = [word[6:] for word in words if word.startswith("--out=")]
given += [word for before, word in zip(words, words[1:]) if before == "--out"]
if command == "sweep":
    before = dict(zip(words[1:], words))
    values = {word for word in words if before.get(word, "")[:2] == "--" and before[word] not in ("--retry", "--") and "=" not in before[word]}
    words = ["sweep", *(word.partition("=")[0] for word in words if word[0] != "-" and word not in values)]
print(given[-1] if given else default_out(config, words))' "$command" "$@"
}

pass_on() { # a signal to the supervisor, which has all ranks finish their generation
    stopped=$1
    [ -n "$child" ] && kill -USR1 "$child" 2>/dev/null
    [ "$1" = TERM ] && is_preempted_for_good && follow
}

is_preempted_for_good() { # whether Slurm ends this job for another one, and will not bring it back
    local found mode
    found=$(scontrol show job --oneliner "$SLURM_JOB_ID")
    [[ $found =~ JobState=PREEMPTED || $found =~ PreemptTime=[0-9] ]] || return
    [[ $found =~ Requeue=0 ]] && return
    mode=$(sacctmgr --noheader --parsable2 show qos "${SLURM_JOB_QOS:-}" format=PreemptMode 2>/dev/null)
    case $mode in "" | cluster) mode=$(scontrol show partition --oneliner "$SLURM_JOB_PARTITION") ;; esac
    [[ ${mode,,} =~ cancel ]]
}

follow() { # submit the job that continues after this one, of its size, but only once
    [ -z "$successor" ] && [ "$MPIES_SUCCESSORS" -gt 0 ] || return
    local script size=("--nodes=$SLURM_JOB_NUM_NODES" "--ntasks=$SLURM_NTASKS" "--partition=$SLURM_JOB_PARTITION")
    script=$(scontrol show job "$SLURM_JOB_ID" | sed -n 's|^ *Command=||p' | head -n 1)
    size+=("--time=$(squeue --noheader --jobs="$job" --format=%l)" ${SLURM_MEM_PER_NODE:+"--mem=$SLURM_MEM_PER_NODE"})
    size+=(${SLURM_JOB_ACCOUNT:+"--account=$SLURM_JOB_ACCOUNT"} ${SLURM_JOB_QOS:+"--qos=$SLURM_JOB_QOS"})
    size+=(${SLURM_ARRAY_TASK_ID:+"--array=$SLURM_ARRAY_TASK_ID"})
    successor=$(MPIES_SUCCESSORS=$((MPIES_SUCCESSORS - 1)) sbatch --parsable --dependency="afterany:$job" "${size[@]}" \
        "${script% "${arguments[*]}"}" ${arguments[@]+"${arguments[@]}"}) && say "job $successor continues after this one"
}

requeue() { # back into the queue, unless someone has ended the job meanwhile
    local state=
    for _ in 1 2 3 4 5; do # Slurm's controller may be restarting
        state=$(squeue --noheader --jobs="$job" --format=%T) && break
        sleep 5
    done
    if [ "$state" = RUNNING ]; then
        say "$1; back into the queue"
        trap - TERM
        scontrol requeue "$job" && sleep 300 # Slurm ends this script
        follow
    fi
    [ -n "$successor" ] || say "$1; the same sbatch continues from there"
    exit 75
}

watch() { # from other nodes, whether this one is lost: with --no-kill Slurm would let the job run on without this script
    local others
    mapfile -t others < <(scontrol show hostnames "$SLURM_JOB_NODELIST" | grep -vx "$SLURMD_NODENAME" | tail -n 2)
    [ "${#others[@]}" = 0 ] && return
    # shellcheck disable=SC2016  # for the other nodes to expand
    srun --overlap --no-kill --mpi=none --nodelist="$(IFS=,; echo "${others[*]}")" --nodes="${#others[@]}" \
        --ntasks="${#others[@]}" --ntasks-per-node=1 --quiet sh -c 'while sleep 60; do
            nodes=$(squeue --noheader --jobs="$1" --format=%N) && [ -n "$nodes" ] || continue
            scontrol show hostnames "$nodes" | grep -qx "$2" || scontrol requeue "$1" \
                || { scontrol show job "$1" | grep -q " Requeue=0 " && scancel "$1"; } # nothing would train any more
        done' sh "$job" "$SLURMD_NODENAME" >/dev/null 2>&1 &
}

start() { # the ranks, on all nodes of the job; in an image srun starts them, as the supervisor within sees no Slurm
    if [ -n "$MPIES_IMAGE" ]; then
        local kind=pmix
        case $MPIES_LAUNCHER in
            auto | srun) ;;
            srun:*) kind=${MPIES_LAUNCHER#srun:} ;;
            *) say "with MPIES_IMAGE only srun starts ranks, but MPIES_LAUNCHER is $MPIES_LAUNCHER; use srun:pmix"; exit 2 ;;
        esac
        exec srun "--mpi=$kind" --kill-on-bad-exit=0 --wait=30 "${inside[@]}" mpies "$command" "$@"
    fi
    exec mpies "$command" --hosts slurm --launcher "$MPIES_LAUNCHER" --restarts "$MPIES_RESTARTS" \
        --min-ranks "$MPIES_MIN_RANKS" "$@"
}

train() { # returns when $run is complete; else ends the job, or puts it back into the queue
    local config=$1 code
    shift
    trap 'pass_on USR1' USR1
    trap 'pass_on TERM' TERM
    prepare
    run=${MPIES_RUN:-$(run_of "$config" "$@")}
    if [ -z "$run" ]; then
        say "mpies was not found: set MPIES_VENV, MPIES_MODULES or MPIES_IMAGE"
        exit 2
    fi
    if [ "${SLURM_RESTART_COUNT:-0}" = 0 ]; then
        local checked=("$config" "$@")
        [ "$command" = sweep ] && checked=() # what varies makes no single config
        "${inside[@]}" mpies doctor "${checked[@]}"
    fi
    say "start ${SLURM_RESTART_COUNT:-0} on $SLURM_JOB_NODELIST: $SLURM_NTASKS tasks $command $config into $run"
    watch
    [ -n "$stopped" ] && requeue "stopped before it began" # a signal that comes later finds the child
    start "$config" --out "$run" "$@" &
    child=$!
    [ -n "$stopped" ] && pass_on "$stopped" # it came before the child had a number
    while :; do # a signal to this script ends the waiting, not the child
        wait "$child"
        code=$?
        [ "$code" -gt 128 ] || break
        kill -0 "$child" 2>/dev/null && continue
        wait "$child" 2>/dev/null # it ended just then, and bash may still know how
        local known=$?
        [ "$known" = 127 ] || code=$known
        break
    done
    if [ "$code" = 0 ]; then
        local ended="$run is complete"
        [ "$command" = sweep ] && ended="nothing is left of $run for this job" # others may still train trials
        say "$ended"
        return
    fi
    # Slurm itself brings back what it preempts; what scancel ended is to stay ended.
    [ "$stopped" = TERM ] && { say "$run was stopped by TERM"; exit 75; }
    [ "$code" = 75 ] && requeue "$run was stopped and has lost nothing"
    # Until it has its handlers, a process that starts is ended by USR1.
    [ "$stopped" = USR1 ] && [ "$code" -gt 128 ] && requeue "$run was stopped while it started"
    say "$run is not complete (code $code)"
    exit "$code"
}

sweep() { # the same for `mpies sweep`; other jobs may train trials of the sweep at the same time
    command=sweep
    train "$@"
}
