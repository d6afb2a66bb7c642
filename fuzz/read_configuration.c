/* Reads any bytes as the --config file of a task of `thinwire train`, which the first byte chooses, as the command
 * does: over the task's own table, with what is left open completed. What is accepted must come back the same from the
 * config.yaml that a run would keep. */
#include "fuzz.h"
#include "settings.h"

#include <string.h>

typedef struct configuration {
    train_settings values;
    train_page page;
    options set;
} configuration;

static tw_status read_bytes(const task_ops *ops, const char *text, size_t size, configuration *c)
{
    char *words[] = {(char *)ops->name};
    memset(c, 0, sizeof *c);
    c->values.task = ops;
    c->values.set = &c->set;
    settings_page(ops, &c->page);
    must(options_parse(&c->page.page, 1, words, &c->values, &c->set) == TW_OK);
    tw_status status = options_read_text(&c->set, "input", text, size);
    return status == TW_OK ? settings_complete(ops, &c->set) : status;
}

static char *write_text(const configuration *c, size_t *size)
{
    char *text = NULL;
    FILE *file = open_memstream(&text, size);
    must(file != NULL && options_write(&c->set, "again", file) == TW_OK && fclose(file) == 0);
    return text;
}

static void must_come_back(const configuration *c)
{
    configuration again;
    size_t size, size_again;
    char *text = write_text(c, &size);
    must(read_bytes(c->values.task, text, size, &again) == TW_OK);
    char *text_again = write_text(&again, &size_again);
    must(size == size_again && memcmp(text, text_again, size) == 0);
    free(text);
    free(text_again);
    options_release(&again.set);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    configuration c;
    size_t tasks = 0;
    while (task_at(tasks)) tasks++;
    if (size < 1) return 0;
    tw_status status = read_bytes(task_at(data[0] % tasks), (const char *)data + 1, size - 1, &c);
    must(status == TW_OK || status == TW_ERROR_FORMAT || status == TW_ERROR_ARGUMENT);
    if (status == TW_OK) must_come_back(&c);
    options_release(&c.set);
    return 0;
}
