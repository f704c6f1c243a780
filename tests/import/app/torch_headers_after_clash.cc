#include "app/clash.h"
//
#include "app/public_torch_headers.inc"

// LibTorch defines LOG itself: what is tested is that it compiles.
const char* TorchHeadersAfterClash() { return "compiles"; }
