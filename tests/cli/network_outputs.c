/* What a recurrent network of a checkpoint gives for inputs that anybody can make again: `network_outputs
 * model.safetensors` prints its outputs for STEPS steps of BATCH sequences, a number a line. The test of thinwire
 * export compares them with PyTorch's. `network_outputs model.safetensors pieces` prints the numbers of the pieces of
 * each line of the standard input, a line each. */
#include "asr_network.h"
#include "lm_network.h"

#include <stdio.h>
#include <stdlib.h>

enum { STEPS = 9, BATCH = 2 };
static const size_t rows = (size_t)STEPS * BATCH;

static void copy_weights(const tw_state *state, const task_predictor *p)
{
    float *values = p->parameters;
    for (size_t i = 0; i < p->tensor_count; i++) {
        size_t count = tw_tensor_count(&p->tensors[i]);
        if (tw_state_get(state, p->tensors[i].name, TW_F32, count, values) != TW_OK) exit(2);
        values += count;
    }
}

static void print(const float *values, size_t count)
{
    for (size_t i = 0; i < count; i++) printf("%.9g\n", (double)values[i]);
}

static tw_status run_text(const lm_predictor *p)
{
    size_t types = vocabulary_count(p->vocabulary);
    int32_t tokens[STEPS * BATCH];
    for (int i = 0; i < STEPS * BATCH; i++) tokens[i] = (int32_t)((size_t)(7 * i + 3) % types);
    language_model_text text = {.tokens = tokens, .steps = STEPS};
    tw_status status = language_model_start_evaluation(p->model, BATCH);
    if (status == TW_OK) status = language_model_evaluate(p->model, &text, NULL);
    if (status == TW_OK) print(language_model_logits(p->model), rows * types);
    return status;
}

static tw_status print_pieces(const piece_set *model)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    tw_status status = TW_OK;
    while (status == TW_OK && (length = getline(&line, &room, stdin)) > 0) {
        piece_ids ids = {0};
        status = pieces_encode(model, line, (size_t)length - (line[length - 1] == '\n'), &ids);
        for (size_t i = 0; i < ids.count; i++) printf("%u ", ids.ids[i]);
        putchar('\n');
        free(ids.ids);
    }
    free(line);
    return status;
}

static tw_status run_frames(const asr_predictor *p)
{
    size_t count = rows * p->config.features;
    float *frames = malloc(count * sizeof *frames);
    const float *scores;
    if (!frames) return TW_ERROR_MEMORY;
    for (size_t i = 0; i < count; i++) frames[i] = (float)(i * 37 % 101) / 50 - 1;
    acoustic_model_batch batch = {.steps = STEPS, .batch = BATCH, .frames = frames};
    tw_status status = acoustic_model_evaluate(p->model, &batch, &scores);
    if (status == TW_OK) print(scores, acoustic_model_rows(p->model, STEPS) * BATCH * p->config.labels);
    free(frames);
    return status;
}

int main(int argc, char **argv)
{
    tw_state *state;
    const task_ops *ops;
    task_predictor *p;
    if (argc < 2 || tw_state_load(argv[1], &state) != TW_OK) return 2;
    if (task_find(tw_state_text(state, "task"), &ops) != TW_OK || ops->predictor_open(state, SIZE_MAX, &p) != TW_OK)
        return 2;
    copy_weights(state, p);
    tw_status status = argc > 2          ? print_pieces(vocabulary_pieces(((lm_predictor *)p)->vocabulary))
                       : ops == &lm_task ? run_text((lm_predictor *)p)
                                         : run_frames((asr_predictor *)p);
    ops->predictor_close(p);
    tw_state_destroy(state);
    return status == TW_OK ? 0 : 2;
}
