# shellcheck shell=bash disable=SC2154,SC2016 # lib.sh sets linear, launch, ...; each host's shell expands what is quoted
# Two hosts on one machine: two network namespaces with a cable between them. Our launcher with --nnodes=2, torchrun with its c10d
# rendezvous, and a cable that is pulled.
need ip unshare nsenter
((UID == 0)) || fail "only root can make network namespaces here"

# start_host N: a process that holds the namespace of host N open; it ends with the case.
start_host() {
  unshare --net sleep infinity &
  hosts[$1]=$!
  await 5 is_elsewhere "${hosts[$1]}"
}
is_elsewhere() { [[ $(readlink "/proc/$1/ns/net") != "$(readlink /proc/self/ns/net)" ]]; }
on() { # HOST COMMAND...
  local -r host=$1
  shift
  nsenter --net="/proc/${hosts[$host]}/ns/net" "$@"
}
clean_up() {
  local -a running
  mapfile -t running < <(jobs -p)
  kill "${hosts[@]}" "${running[@]}" 2>/dev/null || true
}
trap clean_up EXIT

start_host 0
start_host 1
ip link add name cohort0 netns "${hosts[0]}" type veth peer name cohort1 netns "${hosts[1]}"
for host in 0 1; do
  on $host ip addr add "10.77.0.$((host + 1))/24" dev cohort$host
  on $host ip link set cohort$host up
  on $host ip link set lo up
done
on 0 timeout 5 bash -c 'until (exec 3<>/dev/tcp/10.77.0.2/9) 2>&1 | grep -q refused; do sleep 0.1; done' || fail "the hosts do not see each other"

# both SECONDS COMMAND...: on both hosts at once, with HOST in the environment; out_0 and out_1, status_0 and status_1.
both() {
  local -r seconds=$1
  local host
  local -a jobs=()
  shift
  for host in 0 1; do
    HOST=$host nsenter --net="/proc/${hosts[$host]}/ns/net" timeout --kill-after=5 "$seconds" bash -c "$1" >"out_$host" 2>&1 </dev/null &
    jobs[host]=$!
  done
  for host in 0 1; do
    statuses[host]=0
    wait "${jobs[host]}" || statuses[host]=$?
  done
  cat out_0 out_1 >out
}
expect_both() { # CODE
  [[ ${statuses[*]} == "$1 $1" ]] || fail "exit codes ${statuses[*]}, not $1 on both hosts:"$'\n'"$(tail -n 60 out)"
}
export launch linear torch_python PWD OMP_NUM_THREADS=1

both 60 '"$launch" --nnodes=2 --node-rank=$HOST --nproc-per-node=2 --master-addr=10.77.0.1 --master-port=29511 \
  "$linear" --data=generated --epochs=2 --checkpoint_dir="$PWD/ours"'
expect_both 0
expect "job      4 ranks, backend gloo"
[[ -d ours/step_00000064 ]] || fail "no checkpoint of step 64"

# Both hosts have the name of this machine, so torchrun cannot tell by it which of them serves the rendezvous.
both 90 '"$torch_python" -m torch.distributed.run --nnodes=2 --nproc-per-node=2 --rdzv-backend=c10d --rdzv-endpoint=10.77.0.1:29512 \
  --rdzv-conf=is_host=$((HOST == 0)) --rdzv-id=two_hosts --local-addr=10.77.0.$((HOST + 1)) --no-python "$linear" --data=generated --epochs=2 --checkpoint_dir="$PWD/torchrun"'
expect_both 0
expect "job      4 ranks, backend gloo"
cmp ours/model_epoch_1.pth torchrun/model_epoch_1.pth || fail "the models of our launcher and of torchrun differ"

# The cable is pulled in mid-training. Every rank gets an error in time, and the last checkpoint resumes.
pull_the_cable() {
  await 30 test -e pulled/latest
  on 0 ip link set cohort0 down
  date +%s >pulled_at
}
pull_the_cable &
both 120 '"$launch" --nnodes=2 --node-rank=$HOST --nproc-per-node=1 --grace=5 --master-addr=10.77.0.1 --master-port=29513 \
  "$linear" --data=generated --epochs=1000000000 --save_every=500 --keep=2 --checkpoint_dir="$PWD/pulled"'
took=$(($(date +%s) - $(<pulled_at)))
for host in 0 1; do
  ((statuses[host] != 0 && statuses[host] != 124 && statuses[host] != 137)) ||
    fail "host $host ended with ${statuses[host]} $took s after the cable was pulled:"$'\n'"$(tail -n 40 "out_$host")"
done
((took < 60)) || fail "it took $took s until both hosts had noticed that the cable was pulled"
on 0 ip link set cohort0 up
on 0 timeout 20 bash -c 'until (exec 3<>/dev/tcp/10.77.0.2/9) 2>&1 | grep -q refused; do sleep 0.1; done' || fail "the cable is still out"
within 60 "$ckpt" verify pulled
expect_status 0
models=(pulled/model_epoch_*)
export epochs=$((${#models[@]} * 500 + 1))
both 60 '"$launch" --nnodes=2 --node-rank=$HOST --nproc-per-node=1 --master-addr=10.77.0.1 --master-port=29514 \
  "$linear" --data=generated --epochs=$epochs --save_every=500 --checkpoint_dir="$PWD/pulled"'
expect_both 0
expect "resumed  "
printf 'every rank had an error %s s after the cable was pulled\n' "$took"
