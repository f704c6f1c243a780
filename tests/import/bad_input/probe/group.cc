#include "cohort/runtime/process_group.h"
