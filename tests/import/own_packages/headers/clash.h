// Defines the short names that logging libraries fight over. Included by intention more than once, and without a guard.

#undef CHECK
#undef LOG
#define CHECK(condition) "the monorepo's own"
#define LOG(severity) "the monorepo's own"
