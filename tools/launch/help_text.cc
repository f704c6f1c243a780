#include <string_view>

#include "cohort/tools/launch/options.h"

namespace cohort::launch {

std::string_view HelpText() {
  return R"(Starts the ranks of a distributed program on this machine, and stops them all when one fails.

Usage: launch [FLAGS] PROGRAM [ARGUMENTS...]

  launch --nproc-per-node=2 ./trainer --epochs=10
  bazel run --run_under='//tools/launch --nproc-per-node=2' //trainers:linear -- --epochs=10

Flags (torchrun's names; --nproc_per_node works as well, and so does a blank in place of '='):

  --nproc-per-node=N    ranks to start on this machine, 1 to 1024; 1 if not given. gpu: one for each GPU that CUDA
                        shows; cpu: one for each processor that this process may use; auto: gpu if there is one, or cpu
  --max-restarts=N      how often all ranks are started again after a failure, 0 to 1000; 0 if not given
  --grace=SECONDS       how long ranks may take to stop once they are asked to, before they are killed; 30 if not given
                        (also --shutdown-timeout, and COHORT_LAUNCH_GRACE in the environment)
  --master-port=PORT    where rank 0 listens; a free port if not given (also MASTER_PORT in the environment)
  --rdzv-id=NAME        the job's name, TORCHELASTIC_RUN_ID; a new one for each launch if not given
  --role=NAME           ROLE_NAME; default if not given
  --dry-run             print the command of each rank, with the variables that it would get, and start nothing
  --explain             print what a rank that is started here, without this launcher, would take from its environment

Output:

  -r, --redirects=WHAT  write to files, in place of the console: 1 standard output, 2 standard error, 3 both, 0 nothing;
                        or by local rank, 0:3,1:1
  -t, --tee=WHAT        the same, and to the console as well
  --log-dir=DIRECTORY   where: DIRECTORY/NAME_XXXXXX/attempt_0/LOCAL-RANK/stdout.log, .../stderr.log, .../error.json;
                        a new directory in TMPDIR if not given
  --local-ranks-filter=0,3
                        the local ranks that are shown on the console; all if not given

For several machines, the same command on each but for --node-rank:

  --nnodes=N            machines; 1 if not given
  --node-rank=N         which of them this is, counted from 0; 0 if not given
  --master-addr=HOST    where the machine with --node-rank=0 is reached; 127.0.0.1 if there is one machine
                        (also MASTER_ADDR in the environment)
  --rdzv-endpoint=HOST:PORT
                        --master-addr and --master-port in one

Accepted so that torchrun's command lines work:

  --standalone          one machine: what we do without --nnodes
  --rdzv-backend=static what we do; c10d if there is one machine
  --no-python           run PROGRAM as it is: what we always do
  --monitor-interval=SECONDS
                        of no effect: ends are seen when they come
  --signals-to-handle=SIGTERM,...
                        INT, TERM, HUP, QUIT, USR1 and USR2 are always passed on

  -h, --help            this text

torchrun's variables PET_NNODES, PET_NPROC_PER_NODE, ... stand in for its flags that are not given.

Everything after PROGRAM belongs to PROGRAM. The ranks get RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT and
the other variables that torchrun sets. With two ranks or more on this machine each line they print starts with
"[RANK] ". Standard input goes to the first rank; the others have none.

Exit code: 0 if every rank ended with 0; else that of the rank that failed first, or 128+N if signal N ended it. 75:
told to stop and saved; the same command goes on. 2: the command line is wrong. 125: the launcher itself could not go
on. 126, 127: PROGRAM is not executable, was not found.
)";
}

}  // namespace cohort::launch
