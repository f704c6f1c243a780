# shellcheck shell=bash disable=SC2154 # lib.sh sets launch, ...
# The launcher as the first process of a container: it is told to stop at whatever moment, and does.
need unshare
((UID == 0)) || fail "only root can make process namespaces here"

container() { unshare --pid --fork --kill-child --mount-proc "$@"; }
export -f container
export launch

# bash -c, because timeout starts programs and not functions.
within 30 bash -c 'container "$launch" --nproc-per-node=2 sh -c "echo pid \$\$; setsid sleep 1000 & sleep 0.5; exit 0"'
expect_status 0
expect "killed what ranks had left running outside their process groups"

# Told to stop after so many microseconds: before main, while it starts its ranks, and while they run. It must be in time, and the
# exit code must be that of a job that was told to stop.
told_to_stop() { # SECONDS
  container bash -c '"$launch" --grace=1 --nproc-per-node=2 sleep 1000 & launcher=$!; sleep "$0"; kill -TERM $launcher; wait $launcher' "$1"
}
for delay in 0.02 0.1 0.5; do
  export delay
  within 20 bash -c "$(declare -f told_to_stop); told_to_stop $delay"
  expect_status 143
done

# As number 1 itself: a signal without a handler is not delivered at all, unless it was blocked in time.
for delay in 0.003 0.01 0.05 0.2 0.5; do
  unshare --pid --fork --kill-child --mount-proc "$launch" --grace=1 --nproc-per-node=2 sleep 1000 >out 2>&1 &
  outer=$!
  until first=$(pgrep --parent "$outer" --full "$launch" 2>/dev/null); do kill -0 "$outer" || fail "unshare has ended: $(cat out)"; done
  sleep "$delay"
  kill -TERM "$first"
  status=0
  for ((i = 0; i < 100; ++i)); do kill -0 "$first" 2>/dev/null && sleep 0.1; done
  ! kill -0 "$first" 2>/dev/null || fail "the launcher as process 1 did not hear a TERM $delay s after it was there"
  wait "$outer" || status=$?
  expect_status 143
done

# It waits for what others leave behind in its container, so that no zombie stays.
unshare --pid --fork --kill-child --mount-proc "$launch" --nproc-per-node=2 sleep 1000 >out 2>&1 &
outer=$!
until first=$(pgrep --parent "$outer" --full "$launch" 2>/dev/null); do kill -0 "$outer" || fail "unshare has ended: $(cat out)"; done
# shellcheck disable=SC2016 # for the shell inside
nsenter --target "$first" --pid --mount bash -c '
  orphan=$(bash -c "sleep 0.2 >/dev/null & echo \$!")
  for ((i = 0; i < 200; ++i)); do [[ -e /proc/$orphan ]] || exit 0; sleep 0.1; done
  exit 1' || fail "the launcher as process 1 left a zombie"
kill -TERM "$first"
wait "$outer" || true
