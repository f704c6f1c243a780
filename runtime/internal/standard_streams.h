// File: standard_streams.h

#ifndef COHORT_RUNTIME_INTERNAL_STANDARD_STREAMS_H_
#define COHORT_RUNTIME_INTERNAL_STANDARD_STREAMS_H_

namespace cohort::internal {

// Local. For the first line of main, while there is one thread. A caller may have closed descriptor 0, 1 or 2; the next file
// that is opened would get its number, and what the program prints would go into that file. Puts something harmless there:
// reading from it and writing to it fail as they would have. Descriptors that are open stay as they are. A machine that has
// none to spare is left as it is.
void OccupyStandardStreams();

}  // namespace cohort::internal

#endif  // COHORT_RUNTIME_INTERNAL_STANDARD_STREAMS_H_
