#include "cohort/trainers/typed_path.h"

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

namespace cohort {

std::string TypedPath(std::string_view path) {
  const char* stands = std::getenv("BUILD_WORKING_DIRECTORY");
  return (std::filesystem::path(stands != nullptr ? stands : "") / path).string();
}

}  // namespace cohort
