#include "app/clash.h"
//
#include "app/public_headers.inc"

const char* HeadersAfterClash() { return LOG(INFO); }
