# shellcheck shell=bash disable=SC2154 # lib.sh sets linear, launch, ...
# Stock torchrun starts cohort programs unchanged: with its agent's store and without, again after a failure, and its report of a
# failure names our error.

torchrun() { "$torch_python" -m torch.distributed.run "$@"; }
export -f torchrun
export torch_python

# bash -c, because timeout starts programs and not functions.
run_torchrun() { # SECONDS ARGUMENTS...
  local -r seconds=$1
  shift
  within "$seconds" bash -c 'torchrun "$@"' torchrun "$@"
}

for ranks in 2 4; do
  run_torchrun 60 --nproc-per-node="$ranks" --master-addr=127.0.0.1 --master-port="$(free_port)" --no-python \
    "$linear" --data=generated --epochs=2 --checkpoint_dir="static_$ranks"
  expect_status 0
  expect "job      $ranks ranks, backend gloo"
  expect "fit      R2 0.98"

  run_torchrun 60 --standalone --nproc-per-node="$ranks" --no-python \
    "$linear" --data=generated --epochs=2 --checkpoint_dir="standalone_$ranks"
  expect_status 0
  expect "job      $ranks ranks, backend gloo"
  expect "fit      R2 0.98"
done
for run in standalone_2 static_4 standalone_4; do
  [[ -d $run/step_00000064 ]] || fail "$run has no checkpoint of step 64"
done
# The same numbers, whatever brought the ranks together.
cmp static_2/model_epoch_1.pth standalone_2/model_epoch_1.pth || fail "the models of static and --standalone differ"

# A rank that is killed: torchrun starts all of them again, and they go on from the last checkpoint.
kill_a_rank() {
  await 60 test -e restarted/latest
  local folder
  for folder in /proc/[0-9]*; do
    [[ $(readlink "$folder/cwd") == "$PWD" && $(readlink "$folder/exe") == *linear* ]] || continue
    grep -qzx RANK=1 "$folder/environ" && kill -KILL "${folder#/proc/}" && return
  done
  fail "there is no rank 1 to kill"
}
kill_a_rank &
killer=$!
run_torchrun 120 --standalone --nproc-per-node=2 --max-restarts=1 --no-python \
  "$linear" --data=generated --epochs=600 --save_every=100 --keep=2 --checkpoint_dir=restarted
wait "$killer" || fail "no rank was killed"
expect_status 0
expect "resumed  "
expect "saved    $PWD/restarted/model_epoch_599.pth"

# An error of ours is what torchrun shows as the root cause.
run_torchrun 60 --standalone --nproc-per-node=2 --no-python "$linear" --data=nowhere.csv --checkpoint_dir=failed
expect "Root Cause"
expect "nowhere.csv"
sed -n '/Root Cause/,$p' out | grep -qF nowhere.csv || fail "torchrun's root cause does not name the file:"$'\n'"$(tail -n 40 out)"
((status != 0)) || fail "exit code 0 after a failure"
