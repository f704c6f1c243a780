#include "cohort/tools/launch/repeated_signals.h"

#include <chrono>
#include <map>
#include <utility>

namespace cohort::launch {
namespace {

constexpr std::chrono::milliseconds kOneAct(100);

}  // namespace

bool RepeatedSignals::IsRepeated(int signal, pid_t sender, Time now) {
  // Who signals us all day long from ever new processes must not fill our memory.
  std::erase_if(meant_, [now](const auto& entry) { return now - entry.second >= kOneAct; });
  return sender != 0 && !meant_.emplace(std::pair(signal, sender), now).second;
}

}  // namespace cohort::launch
