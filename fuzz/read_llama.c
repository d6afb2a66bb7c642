/* Reads any texts as the folder of a Llama: config.json, after a line "---" tokenizer.json, and after another the
 * tensors, a line "name 2 3" for each. What is accepted must be a model file that thinwire generate would take. */
#include "folder.h"
#include "task.h"
#include "tensor_line.h"

#include <string.h>

static const char divider[] = "\n---\n";

enum { PARTS = 3 };

static const task_ops *find_reader(void)
{
    for (size_t i = 0; task_at(i); i++)
        if (task_at(i)->read_folder) return task_at(i);
    abort();
}

static void write_tensors(const char *text, size_t size)
{
    tw_state *state;
    char *copy = strndup(text, size), *rest;
    must(copy != NULL && tw_state_create(&state) == TW_OK);
    for (char *line = strtok_r(copy, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) put_tensor(state, line);
    must(tw_state_save(state, in_folder("model.safetensors")) == TW_OK);
    tw_state_destroy(state);
    free(copy);
}

/* The part from *at on; *at moves behind its divider. */
static size_t next_part(const uint8_t *data, size_t size, size_t *at)
{
    const uint8_t *end = *at < size ? memmem(data + *at, size - *at, divider, sizeof divider - 1) : NULL;
    const size_t length = end ? (size_t)(end - data) - *at : size - *at;
    *at = end ? *at + length + sizeof divider - 1 : size;
    return length;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *const names[] = {"config.json", "tokenizer.json"};
    size_t at = 0;
    tw_state *state = NULL;
    make_folder();
    for (int i = 0; i < PARTS; i++) {
        const size_t first = at, length = next_part(data, size, &at);
        if (i < 2)
            must(write_file(names[i], data + first, length));
        else
            write_tensors((const char *)data + first, length);
    }
    tw_status status = find_reader()->read_folder(fuzz_folder, &state);
    must(status == TW_OK || status == TW_ERROR_FORMAT || status == TW_ERROR_UNSUPPORTED);
    if (status == TW_OK) must(tw_state_count(state) > 0 && tw_state_text(state, TASK_NETWORK) != NULL);
    if (status == TW_OK) tw_state_destroy(state);
    return 0;
}
