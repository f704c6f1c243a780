# shellcheck shell=bash disable=SC2154,SC2034 # lib.sh sets linear, launch, ...
# srun starts cohort programs unchanged. The cluster is this machine: a munged, a slurmctld and a slurmd of our own, which end with
# the case.
need munged mungekey slurmctld slurmd srun sbatch scontrol
((UID == 0)) || fail "Slurm's daemons can only be started by root here"

start_munge() {
  mkdir -m 0711 munge
  mungekey --create --keyfile="$PWD/munge/key"
  chown -R munge:munge munge
  setpriv --reuid=munge --regid=munge --clear-groups munged --force --key-file="$PWD/munge/key" --socket="$PWD/munge/socket" \
    --pid-file="$PWD/munge/pid" --log-file="$PWD/munge/log" --seed-file="$PWD/munge/seed"
}

write_slurm_conf() {
  local -r host=$(hostname)
  mkdir -p slurm/{state,spool}
  export SLURM_CONF=$PWD/slurm/slurm.conf
  echo "CgroupPlugin=disabled" >slurm/cgroup.conf
  cat >"$SLURM_CONF" <<END
ClusterName=cohort
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$(free_port)
SlurmdPort=$(free_port)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$PWD/munge/socket
CredType=auth/munge
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
StateSaveLocation=$PWD/slurm/state
SlurmdSpoolDir=$PWD/slurm/spool
SlurmctldPidFile=$PWD/slurm/slurmctld.pid
SlurmdPidFile=$PWD/slurm/slurmd.pid
SlurmctldLogFile=$PWD/slurm/slurmctld.log
SlurmdLogFile=$PWD/slurm/slurmd.log
SlurmdParameters=config_overrides
NodeName=$host NodeAddr=127.0.0.1 CPUs=8 State=UNKNOWN
PartitionName=all Nodes=$host Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE
END
}

# They write into the scratch folder until they have ended.
stop_daemons() {
  local file pid
  for file in slurm/slurmd.pid slurm/slurmctld.pid munge/pid; do
    pid=$(cat "$scratch/$file" 2>/dev/null) || continue
    kill "$pid" || continue
    for ((i = 0; i < 100; ++i)); do
      kill -0 "$pid" 2>/dev/null || break
      sleep 0.1
    done
  done
}
readonly scratch=$PWD
trap stop_daemons EXIT

chmod 0755 "$scratch"
start_munge
write_slurm_conf
slurmctld
slurmd
is_up() { [[ $(sinfo --noheader --format=%T) == idle ]]; }
await 30 is_up

export OMP_NUM_THREADS=1
for ranks in 1 2 4; do
  within 60 srun --ntasks="$ranks" "$linear" --data=generated --epochs=2 --checkpoint_dir="run_$ranks"
  expect_status 0
  expect "fit      R2 0.98"
  ((ranks == 1)) || expect "job      $ranks ranks, backend gloo"
done
within 60 "$launch" --nproc-per-node=2 "$linear" --data=generated --epochs=2 --checkpoint_dir=ours
cmp run_2/model_epoch_1.pth ours/model_epoch_1.pth || fail "the models under srun and under our launcher differ"

# In a batch script: by hand it is a world of one, under srun it is the job, and under our launcher it is the launcher's.
cat >script.sh <<END
#!/bin/bash
"$linear" --data=generated --epochs=1 --checkpoint_dir="$PWD/by_hand" && echo BY HAND DONE
srun "$linear" --data=generated --epochs=1 --checkpoint_dir="$PWD/by_srun" && echo BY SRUN DONE
"$launch" --nproc-per-node=3 "$linear" --data=generated --epochs=1 --checkpoint_dir="$PWD/by_launch" && echo BY LAUNCH DONE
END
within 60 sbatch --wait --ntasks=2 --output="$PWD/batch.out" script.sh
cat batch.out >>out
expect_status 0
for line in "BY HAND DONE" "BY SRUN DONE" "BY LAUNCH DONE" "job      2 ranks" "job      3 ranks"; do expect "$line"; done

rm out
# scancel tells all ranks to stop, and they save: the same command goes on.
timeout 60 srun --ntasks=2 --kill-on-bad-exit=0 "$linear" --data=generated --epochs=1000000000 --save_every=1000000000 --checkpoint_dir=cancelled \
  >out 2>&1 </dev/null &
job=$!
await 30 grep -qF "started  " out
scancel --signal=TERM "$(squeue --noheader --format=%i | head -n 1)"
status=0
wait "$job" || status=$?
expect_status 75
expect "stopped  after"
compgen -G 'cancelled/step_*' >/dev/null || fail "nothing was saved"
