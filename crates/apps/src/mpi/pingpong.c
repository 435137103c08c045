/* MPI between two processes: messages of 8 B to 8 MB there and back.
 *
 *     pingpong check             compares every byte; prints how many were sent by both together
 *     pingpong rate BYTES SECS   prints one line of JSON: how many messages went there and back, in how many seconds, and the
 *                                processor time (s) of both processes
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { LARGEST = 8 << 20, TIMES = 4 };

static void fill(unsigned char *to, size_t count, uint64_t seed) {
    uint64_t state = seed * 0x9e3779b97f4a7c15u | 1;
    for (size_t at = 0; at < count; at++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        to[at] = (unsigned char)(state >> 32);
    }
}

/* Sends from one to the other and back; what comes back is what went. */
static void once(int rank, unsigned char *bytes, int count) {
    if (rank == 0) {
        MPI_Send(bytes, count, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
        MPI_Recv(bytes, count, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(bytes, count, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(bytes, count, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
    }
}

static void check(int rank, unsigned char *bytes, unsigned char *wanted) {
    long long total = 0;
    for (int count = 8; count <= LARGEST; count *= 4) {
        for (int step = 0; step < TIMES; step++) {
            fill(wanted, count, (uint64_t)count + step);
            if (rank == 0) memcpy(bytes, wanted, count); else memset(bytes, 0, count);
            once(rank, bytes, count);
            if (memcmp(bytes, wanted, count) != 0) {
                fprintf(stderr, "rank %d: %d bytes came as others\n", rank, count);
                MPI_Abort(MPI_COMM_WORLD, 1);
            }
            total += 2LL * count;
        }
    }
    long long sum = 0, mine = total;
    MPI_Allreduce(&mine, &sum, 1, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("%lld\n", sum / 2);
}

static double processor(void) {
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return use.ru_utime.tv_sec + use.ru_stime.tv_sec + (use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6;
}

static void rate(int rank, unsigned char *bytes, int count, double seconds) {
    for (int step = 0; step < 100; step++) once(rank, bytes, count);
    long long done = 0;
    int batch = count < 65536 ? 100 : 4, more = 1;
    double used = processor(), begin = MPI_Wtime();
    while (more) {
        for (int step = 0; step < batch; step++) once(rank, bytes, count);
        done += batch;
        more = MPI_Wtime() < begin + seconds;
        MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    double took = MPI_Wtime() - begin, mine = processor() - used, both = 0;
    MPI_Reduce(&mine, &both, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("{\"count\": %lld, \"seconds\": %.6f, \"processor\": %.6f}\n", done, took, both);
}

int main(int argc, char **argv) {
    int rank = 0, size = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    unsigned char *bytes = malloc(LARGEST), *wanted = malloc(LARGEST);
    if (size != 2 || argc < 2 || !bytes || !wanted) MPI_Abort(MPI_COMM_WORLD, 2);
    memset(bytes, 1, LARGEST);
    if (strcmp(argv[1], "check") == 0) check(rank, bytes, wanted);
    else rate(rank, bytes, atoi(argv[2]), atof(argv[3]));
    MPI_Finalize();
    return 0;
}
