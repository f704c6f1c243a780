# shellcheck shell=bash disable=SC2154 # lib.sh sets linear, launch, ...
# Open MPI starts cohort programs unchanged, with no MASTER_ADDR or MASTER_PORT.
need mpirun

mpirun=(mpirun --oversubscribe)
((UID)) || mpirun+=(--allow-run-as-root)
export OMP_NUM_THREADS=1
for ranks in 1 2 4; do
  within 60 "${mpirun[@]}" -n "$ranks" "$linear" --data=generated --epochs=2 --checkpoint_dir="run_$ranks"
  expect_status 0
  expect "fit      R2 0.98"
  ((ranks == 1)) || expect "job      $ranks ranks, backend gloo"
done
within 60 "$launch" --nproc-per-node=2 "$linear" --data=generated --epochs=2 --checkpoint_dir=ours
expect_status 0
cmp run_2/model_epoch_1.pth ours/model_epoch_1.pth || fail "the models under mpirun and under our launcher differ"

# Two jobs at once stay out of each other's way.
for job in 1 2; do
  timeout 60 "${mpirun[@]}" -n 2 "$linear" --data=generated --epochs=50 --save_every=50 --checkpoint_dir="at_once_$job" >"out_$job" 2>&1 &
  jobs[job]=$!
done
for job in 1 2; do wait "${jobs[job]}" || fail "job $job of two at once:"$'\n'"$(tail -n 40 "out_$job")"; done

# A launcher's own variables win over mpirun's.
within 60 "${mpirun[@]}" -n 1 "$launch" --nproc-per-node=2 "$linear" --data=generated --epochs=1 --checkpoint_dir=nested
expect_status 0
expect "job      2 ranks, backend gloo"
