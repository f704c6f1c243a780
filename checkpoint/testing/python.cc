#include "cohort/checkpoint/testing/python.h"

#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/log/absl_check.h"
#include "gtest/gtest.h"

namespace cohort::testing {

std::string RunPython(const std::string& script, const std::vector<std::string>& arguments) {
  std::vector<std::string> command = {"python3", "-I", "-c", script};
  command.insert(command.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& argument : command) argv.push_back(argument.data());
  argv.push_back(nullptr);

  int output[2];
  ABSL_PCHECK(pipe(output) == 0);
  const pid_t child = fork();
  ABSL_PCHECK(child >= 0);
  if (child == 0) {
    dup2(output[1], STDOUT_FILENO);
    dup2(output[1], STDERR_FILENO);
    execvp(argv[0], argv.data());
    _exit(127);
  }
  close(output[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t size; (size = read(output[0], buffer, sizeof(buffer))) > 0;) text.append(buffer, size);
  close(output[0]);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "python3 ended with status " << status << ":\n" << text;
  return text;
}

}  // namespace cohort::testing
