#include "cohort/runtime/error_file.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::testing::HasSubstr;

constexpr char kVariable[] = "TORCHELASTIC_ERROR_FILE";

// The environment is read once in a process: each case is a process of its own.
class ErrorFileTest : public ::testing::Test {
 protected:
  ErrorFileTest() {
    std::string pattern = ::testing::TempDir() + "/error_file_XXXXXX";
    path_ = std::string(mkdtemp(pattern.data())) + "/error.json";
  }

  // The exit code of a process that does this with the variable set.
  static int ExitCodeWith(const char* value, const std::function<int()>& what) {
    const pid_t pid = fork();
    if (pid == 0) {
      if (value == nullptr) {
        unsetenv(kVariable);
      } else {
        setenv(kVariable, value, /*overwrite=*/1);
      }
      _exit(what());
    }
    int status = 0;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }

  std::string Contents() const {
    std::stringstream text;
    text << std::ifstream(path_).rdbuf();
    return text.str();
  }

  std::string path_;
};

TEST_F(ErrorFileTest, TheFirstErrorOfAProcessCounts) {
  EXPECT_EQ(ExitCodeWith(path_.c_str(),
                         [] {
                           const bool first = WriteErrorFile(absl::DataLossError("rank 2: the disk"));
                           const bool second = WriteErrorFile(absl::UnavailableError("rank 2 has left"));
                           return first && !second ? 0 : 1;
                         }),
            0);
  EXPECT_THAT(Contents(), HasSubstr("\"DATA_LOSS: rank 2: the disk\""));
}

TEST_F(ErrorFileTest, NothingIsWrittenWhereNobodyAsks) {
  for (const char* value : {static_cast<const char*>(nullptr), ""}) {
    EXPECT_EQ(ExitCodeWith(value, [] { return WriteErrorFile(absl::UnknownError("x")) ? 1 : 0; }), 0);
  }
}

TEST_F(ErrorFileTest, WhatCannotBeWrittenIsNoReasonToFail) {
  for (const char* value : {"/no/such/directory/error.json", "/", "relative/nowhere", "/dev/full", "/dev/null"}) {
    EXPECT_EQ(ExitCodeWith(value, [] { return WriteErrorFile(absl::UnknownError("x")) ? 1 : 0; }), 0) << value;
  }
}

// A rank that a rank has started inherits the variable.
TEST_F(ErrorFileTest, WhatIsThereAlreadyStays) {
  std::ofstream(path_) << "a child's";
  EXPECT_EQ(ExitCodeWith(path_.c_str(), [] { return WriteErrorFile(absl::UnknownError("x")) ? 1 : 0; }), 0);
  EXPECT_EQ(Contents(), "a child's");
}

TEST_F(ErrorFileTest, TheVariableIsReadOnce) {
  EXPECT_EQ(ExitCodeWith(path_.c_str(),
                         [] {
                           LocateErrorFile();
                           setenv(kVariable, "/elsewhere", /*overwrite=*/1);
                           return WriteErrorFile(absl::UnknownError("x")) ? 0 : 1;
                         }),
            0);
  EXPECT_THAT(Contents(), HasSubstr("UNKNOWN: x"));
}

TEST_F(ErrorFileTest, OfManyThreadsOneWrites) {
  EXPECT_EQ(ExitCodeWith(path_.c_str(),
                         [] {
                           std::atomic<int> num_written = 0;
                           std::vector<std::thread> threads;
                           for (int i = 0; i < 8; ++i) {
                             threads.emplace_back([&] { num_written += WriteErrorFile(absl::UnknownError("x")); });
                           }
                           for (std::thread& thread : threads) thread.join();
                           return num_written == 1 ? 0 : 1;
                         }),
            0);
  EXPECT_THAT(Contents(), HasSubstr("UNKNOWN: x"));
}

}  // namespace
}  // namespace cohort
