#include "cohort/runtime/tensor_collectives.h"
