// The constructor by whose name in the library cohort knows the string ABI.
#include <string>

namespace c10 {
class Error {
 public:
  explicit Error(std::string message);
};
Error::Error(std::string) {}
}  // namespace c10
