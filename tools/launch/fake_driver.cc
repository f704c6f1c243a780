// A driver for device_count_test: it answers as FAKE_DRIVER says, "RESULT COUNT", or crashes.

#include <cstdio>
#include <cstdlib>

namespace {

int result = 0;
int count = 0;

}  // namespace

extern "C" int cuInit(unsigned) {
  const char* const answer = getenv("FAKE_DRIVER");
  if (answer == nullptr || sscanf(answer, "%d %d", &result, &count) != 2) abort();
  return result;
}

extern "C" int cuDeviceGetCount(int* num_devices) {
  *num_devices = count;
  return 0;
}
