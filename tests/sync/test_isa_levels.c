/* Every instruction set gives the same run, bit for bit. The level is chosen once a process, so the program runs itself
 * again for each: with an argument it trains and prints the checksum of its weights. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <thinwire/thinwire_plugin.h>
#include <unistd.h>

#include "cpu.h"
#include "support/cmocka.h"

enum { WEIGHTS = 90007, BIASES = 131, ELEMENTS = WEIGHTS + BIASES, STEPS = 12 };

static const tw_tensor table[] = {{"w", 2, {1, WEIGHTS}}, {"b", 1, {BIASES}}};
/* Beside every scheme's defaults. */
static const char *const specs[] = {"topk:density=0.01,values=bf16", "topk:density=0.01,values=sign,leftovers=fp16",
                                    "dgc:density=0.001,warmup_steps=6,clip=2",
                                    "dgc:density=0.01,nesterov=on,masking=off,values=fp16"};

static void must(tw_status status)
{
    if (status == TW_OK) return;
    fprintf(stderr, "%s\n", tw_last_error());
    exit(2);
}

/* Gradients pull the weights towards random targets, so that a wrong bit spreads. */
static void step(tw_reducer *reducer, int number, float *weights, float *gradient)
{
    uint32_t words[4];
    for (size_t i = 0; i < ELEMENTS; i++) {
        tw_random(5, (uint64_t)number, i, words);
        gradient[i] = weights[i] - (float)words[0] / 4294967296.0f;
    }
    must(tw_reducer_submit(reducer, 1, gradient + WEIGHTS));
    must(tw_reducer_submit(reducer, 0, gradient));
    must(tw_reducer_wait(reducer));
    for (size_t i = 0; i < ELEMENTS; i++) weights[i] -= 0.25f * gradient[i];
}

static uint32_t train(const char *spec)
{
    static float weights[ELEMENTS], gradient[ELEMENTS];
    tw_comm *comm;
    tw_reducer *reducer;
    memset(weights, 0, sizeof weights);
    must(tw_comm_create_threads(1, &comm));
    must(tw_reducer_create(comm, spec, table, 2, &reducer));
    for (int number = 0; number < STEPS; number++) step(reducer, number, weights, gradient);
    tw_reducer_destroy(reducer);
    tw_comm_destroy(comm);
    return tw_crc32c(0, weights, sizeof weights);
}

/* The child's answer: "LEVEL CHECKSUM". */
static int answer(const char *spec)
{
    printf("%s %08x\n", tw_isa(), train(spec));
    return 0;
}

static void ask(tw_isa_level level, const char *spec, char *text, int capacity)
{
    int ends[2], status;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        setenv("THINWIRE_ISA", tw_isa_name(level), 1);
        execl("/proc/self/exe", "test_isa_levels", spec, (char *)NULL);
        _exit(3);
    }
    close(ends[1]);
    FILE *from = fdopen(ends[0], "r");
    assert_non_null(from);
    assert_non_null(fgets(text, capacity, from));
    fclose(from);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void check_levels(const char *spec)
{
    char expected[64];
    ask(TW_ISA_SCALAR, spec, expected, sizeof expected);
    assert_memory_equal(expected, "scalar ", 7);
    for (int level = TW_ISA_SCALAR + 1; level < TW_ISA_LEVELS; level++) {
        if (!tw_isa_supported((tw_isa_level)level)) continue;
        char text[64];
        ask((tw_isa_level)level, spec, text, sizeof text);
        assert_memory_equal(text, tw_isa_name((tw_isa_level)level), strlen(tw_isa_name((tw_isa_level)level)));
        if (strcmp(strchr(text, ' '), strchr(expected, ' ')) != 0) fail_msg("%s: %s, not %s", spec, text, expected);
    }
}

static void test_levels_agree(void **state)
{
    (void)state;
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) check_levels(specs[s]);
    for (size_t s = 0; s < tw_scheme_count(); s++) check_levels(tw_scheme_name(s));
}

int main(int argc, char **argv)
{
    if (argc > 1) return answer(argv[1]);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_levels_agree)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
