#include "app/public_headers.inc"
//
#include "app/clash.h"

const char* HeadersBeforeClash() { return LOG(INFO); }
