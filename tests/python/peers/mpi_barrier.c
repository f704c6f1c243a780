// The time of MPI_Barrier: five blocks, the median of each printed by rank 0.

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { kBlocks = 5, kBarriers = 2000, kWarmUp = 200 };

static int Ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

int main(int argc, char** argv) {
  static double times[kBarriers];
  int rank = 0, size = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (int i = 0; i < kWarmUp; ++i) MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) printf("MPI_Barrier, %d ranks, p50 of each block in us:", size);
  for (int block = 0; block < kBlocks; ++block) {
    for (int i = 0; i < kBarriers; ++i) {
      const double start = MPI_Wtime();
      MPI_Barrier(MPI_COMM_WORLD);
      times[i] = MPI_Wtime() - start;
    }
    qsort(times, kBarriers, sizeof(times[0]), Ascending);
    if (rank == 0) printf(" %.1f", times[kBarriers / 2] * 1e6);
  }
  if (rank == 0) printf("\n");
  MPI_Finalize();
  return 0;
}
