#include "app/public_torch_headers.inc"
//
#include "app/clash.h"

const char* TorchHeadersBeforeClash() { return LOG(INFO); }
