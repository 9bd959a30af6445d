# shellcheck shell=bash
# What the batch scripts beside this file share: `train CONFIG [KEY=VALUE ...]` on the ranks of a Slurm job.
#
# A job is done when the run directory says so (finished.yaml), never by an exit code alone.  What the time limit or
# exit code 75 breaks off is put back into the queue and goes on where it stopped; so does what a lost node broke off.

# Set these before sbatch, which hands them on, or change them here.
: "${MPIES_MODULES:=}"         # modules to load, such as "gcc openmpi"
: "${MPIES_VENV:=${slurm:+$slurm/../.venv}}" # virtual environment; where there is none, what is on the path
: "${MPIES_IMAGE:=}"           # Apptainer image to run in, in place of the virtual environment
: "${MPIES_LAUNCHER:=auto}"    # auto (the first that works), srun, srun:pmix, srun:pmi2 or mpirun
: "${MPIES_MPIRUN:=}"          # further options of mpirun, such as --with-ft ulfm
: "${MPIES_RUN:=}"             # run directory; default runs/NAME-OF-CONFIG, with the overrides in its name
: "${MPIES_RESTARTS:=20}"      # how often a job may have been restarted and still be after an unexpected end
# sbatch itself reads SBATCH_ACCOUNT, SBATCH_PARTITION, SBATCH_QOS, SBATCH_TIMELIMIT and the like.

inside=()   # what a command must be started with to find mpies
launcher=() # what starts it on all ranks
run=        # the run directory
child=      # the process to hand signals to
stopped=    # the signal that this script was sent

# One task of an array has the number of the whole array, which is not what is meant.
job=$SLURM_JOB_ID
[ -n "${SLURM_ARRAY_JOB_ID:-}" ] && job=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID

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
    export PATH OMP_NUM_THREADS=1 PYTHONSAFEPATH=1 PYTHONUNBUFFERED=1
    export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1} # srun does not take it over from sbatch
    if [ "$(id -u)" = 0 ]; then # for test clusters: Open MPI wants it said
        export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    fi
}

launcher_works() { # whether the ranks that the launcher starts are connected; what goes wrong is added to $trouble
    local output
    output=$(timeout 120 "${launcher[@]}" "${inside[@]}" python3 -c '
import sys
from mpi4py import MPI
sys.exit(MPI.COMM_WORLD.size != int(sys.argv[1]))' "$SLURM_NTASKS" 2>&1) && return # in a rank, MPICH has it changed
    trouble+=$'\n'"${launcher[*]}: $(tail -n 3 <<<"$output")"
    return 1
}

find_launcher() { # PMIx or PMI2 under srun, or mpirun: the first one that works
    local type kinds binding trouble=
    kinds=$(srun --mpi=list 2>&1)
    for type in pmix pmi2; do
        [[ $MPIES_LAUNCHER =~ ^(auto|srun|srun:$type)$ && $kinds == *$type* ]] || continue
        # Ranks leave together, each with its exit code; where one does so alone, the others get half a minute.
        launcher=(srun "--mpi=$type" --kill-on-bad-exit=0 --wait=30 --cpu-bind=cores)
        launcher_works && return
        if [ $type = pmix ]; then # where the two PMIx libraries, of Slurm and of the MPI, share no other way to authenticate
            launcher=(env PMIX_MCA_psec=native "${launcher[@]}")
            launcher_works && return
        fi
    done
    if [[ $MPIES_LAUNCHER =~ ^(auto|mpirun)$ ]]; then
        # Open MPI 4 and MPICH know no qualifiers.
        for binding in "--bind-to core:overload-allowed:if-supported" "--bind-to core"; do
            # shellcheck disable=SC2206  # options are words
            launcher=(mpirun -n "$SLURM_NTASKS" $binding $MPIES_MPIRUN)
            launcher_works && return
        done
    fi
    say "no way to start connected ranks (MPIES_LAUNCHER=$MPIES_LAUNCHER):$trouble"
    exit 1
}

run_of() { # the run directory that mpies gives a config and its overrides
    "${inside[@]}" python3 -c '
import sys
from mpies.runs.files import default_out
print(default_out(sys.argv[1], sys.argv[2:]))' "$@"
}

pass_on() { # a signal to the ranks: srun and mpirun hand USR1 to all of them, mpirun is short with a TERM
    stopped=$1
    [ -n "$child" ] && kill -USR1 "$child" 2>/dev/null
}

requeue() { # back into the queue, unless someone has ended the job meanwhile
    if [ "$(squeue --noheader --jobs="$job" --format=%T)" = RUNNING ]; then
        say "$1; back into the queue"
        trap - TERM
        scontrol requeue "$job" && sleep 300 # Slurm ends this script
    fi
    say "$1; the same sbatch again goes on from there"
    exit 75
}

# A file that was written anew is another one: its number or time differs.
marker() { stat --format=%i,%Z "$1/finished.yaml" 2>/dev/null; }
length() { stat --format=%s "$1/metrics.csv" 2>/dev/null || echo 0; }

train() { # returns when $run is complete; else ends the job, or puts it back into the queue
    local config=$1 code before length_before
    shift
    trap 'pass_on USR1' USR1
    trap 'pass_on TERM' TERM
    prepare
    run=${MPIES_RUN:-$(run_of "$config" "$@")}
    if [ -z "$run" ]; then
        say "no mpies: set MPIES_VENV, MPIES_MODULES or MPIES_IMAGE"
        exit 2
    fi
    [ "${SLURM_RESTART_COUNT:-0}" = 0 ] && "${inside[@]}" mpies doctor "$config" "$@"
    find_launcher
    say "start ${SLURM_RESTART_COUNT:-0} on $SLURM_JOB_NODELIST: $SLURM_NTASKS ranks by ${launcher[*]} into $run"
    before=$(marker "$run") length_before=$(length "$run")
    [ -n "$stopped" ] && requeue "stopped before it began"
    "${launcher[@]}" "${inside[@]}" mpies train "$config" --out "$run" "$@" &
    child=$!
    while :; do # a signal to this script ends the waiting, not the child
        wait "$child"
        code=$?
        kill -0 "$child" 2>/dev/null || break
    done
    if [[ $(marker "$run") != "$before" && -f $run/finished.yaml ]]; then
        say "$run is complete"
        return
    fi
    # Slurm itself brings back what it preempts; what scancel ended is to stay ended.
    [ "$stopped" = TERM ] && { say "$run was stopped by TERM"; exit 75; }
    [ "$code" = 2 ] && exit 2
    [[ $stopped = USR1 || $code = 75 ]] && requeue "$run was stopped after a checkpoint"
    if [[ $(length "$run") -gt $length_before && ${SLURM_RESTART_COUNT:-0} -lt $MPIES_RESTARTS ]]; then
        requeue "$run ended unexpectedly with code $code, but had made progress"
    fi
    say "$run is not complete (code $code)"
    exit $((code ? code : 1)) # mpirun says 0 after the loss of a node as well
}
