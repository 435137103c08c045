/* stdio on a socket: fdopen for reading, writing and both; getc, putc, ungetc, fgets, fprintf, getline, fileno, dup. */
#include "quirk.h"

static void two_files(int ends[2])
{
    char line[64], *grown = NULL;
    size_t size = 0;
    FILE *in = fdopen(dup(ends[1]), "r"), *out = fdopen(dup(ends[0]), "w");
    CHECK(in && out && fileno(in) > 2 && fileno(out) > 2 && fileno(in) != fileno(out));
    setvbuf(out, NULL, _IOLBF, 0);
    CHECK(fprintf(out, "number %d\n", 42) == 10);
    CHECK(fgets(line, sizeof line, in) && strcmp(line, "number 42\n") == 0);
    CHECK(fputs("one\ntwo\n", out) >= 0);
    CHECK(putc('!', out) == '!' && putc('\n', out) == '\n');
    CHECK(getline(&grown, &size, in) == 4 && strcmp(grown, "one\n") == 0);
    CHECK(getc(in) == 't' && ungetc('T', in) == 'T');
    CHECK(fgets(line, sizeof line, in) && strcmp(line, "Two\n") == 0);
    CHECK(getc(in) == '!' && getc(in) == '\n');
    int number = 0;
    CHECK(fprintf(out, "  17 words\n") > 0);
    CHECK(fscanf(in, "%d %63s", &number, line) == 2 && number == 17 && strcmp(line, "words") == 0);
    CHECK(fclose(out) == 0 && fclose(in) == 0);
    free(grown);
}

static void one_file(int ends[2])
{
    char line[64], block[100000], back[100000];
    FILE *both = fdopen(ends[0], "r+");
    CHECK(both && fileno(both) == ends[0]);
    setvbuf(both, NULL, _IONBF, 0);
    CHECK(fputs("question\n", both) >= 0);
    expect(ends[1], "question\n");
    send_all(ends[1], "answer\n", 7);
    CHECK(fgets(line, sizeof line, both) && strcmp(line, "answer\n") == 0);
    memset(block, 'x', sizeof block);
    pid_t child = fork();
    if (child == 0) {
        receive_all(ends[1], back, sizeof back);
        CHECK(memcmp(block, back, sizeof block) == 0);
        send_all(ends[1], back, sizeof back);
        _exit(0);
    }
    CHECK(fwrite(block, 1, sizeof block, both) == sizeof block && fflush(both) == 0);
    CHECK(fread(back, 1, sizeof back, both) == sizeof back && memcmp(block, back, sizeof block) == 0);
    reap(child);
    CHECK(shutdown(ends[1], SHUT_WR) == 0);
    CHECK(getc(both) == EOF && feof(both));
    CHECK(fclose(both) == 0);
    FAILS(fcntl(ends[0], F_GETFD), EBADF);
    CHECK(recv(ends[1], line, 1, 0) == 0);
}

/* inetd's way: the connection is standard input and output. */
static void standard(const char *self)
{
    int ends[2];
    char text[64] = "";
    pair(ends);
    pid_t child = fork();
    if (child == 0) {
        CHECK(dup2(ends[1], 0) == 0 && dup2(ends[1], 1) == 1);
        close(ends[0]);
        close(ends[1]);
        execl(self, self, "serve", (char *)NULL);
        _exit(127);
    }
    CHECK(close(ends[1]) == 0);
    send_all(ends[0], "inetd\n", 6);
    CHECK(shutdown(ends[0], SHUT_WR) == 0);
    CHECK(recv(ends[0], text, 13, MSG_WAITALL) == 13 && strcmp(text, "hello, inetd\n") == 0);
    CHECK(recv(ends[0], text, 1, 0) == 0);
    reap(child);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        char line[64];
        while (fgets(line, sizeof line, stdin))
            printf("hello, %s", line);
        return 0;
    }
    int ends[2];
    pair(ends);
    two_files(ends);
    one_file(ends);
    standard(argv[0]);
    return 0;
}
