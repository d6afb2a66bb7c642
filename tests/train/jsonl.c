/* Lines that were written parse again, one object a line, whatever their numbers. */
#include "jsonl.h"
#include "support.h"

#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

TEST_IN_FOLDER(lines_parse_and_append)
{
    char path[256], line[256];
    snprintf(path, sizeof path, "%s/metrics.jsonl", (const char *)*state);
    const double values[] = {0.1, 1e300, NAN, INFINITY, 999999999999999.0};
    for (int i = 0; i < 5; i++) { /* opened anew each time, as a resumed run does */
        jsonl *file;
        cJSON *object = cJSON_CreateObject();
        cJSON_AddNumberToObject(object, "value", values[i]);
        cJSON_AddStringToObject(object, "text", "a\n\"b\"");
        assert_ok(jsonl_open(path, &file));
        assert_ok(jsonl_write(file, object));
        jsonl_close(file);
    }
    FILE *file = fopen(path, "r");
    for (int i = 0; i < 5; i++) {
        assert_non_null(fgets(line, sizeof line, file));
        cJSON *object = cJSON_Parse(line);
        assert_non_null(object);
        const cJSON *value = cJSON_GetObjectItem(object, "value");
        if (isfinite(values[i]))
            assert_true(value->valuedouble == values[i]);
        else
            assert_true(cJSON_IsNull(value));
        assert_string_equal(cJSON_GetObjectItem(object, "text")->valuestring, "a\n\"b\"");
        cJSON_Delete(object);
    }
    assert_null(fgets(line, sizeof line, file));
    fclose(file);
}

TEST_IN_FOLDER(half_a_line_is_dropped)
{
    static const char *const before[] = {"", "{\"ha", "{}\n", "{}\n{}\n{\"half\":1"};
    static const char *const after[] = {"{}\n", "{}\n", "{}\n{}\n", "{}\n{}\n{}\n"};
    char path[256], text[64];
    snprintf(path, sizeof path, "%s/metrics.jsonl", (const char *)*state);
    for (int i = 0; i < 4; i++) {
        jsonl *lines;
        FILE *file = fopen(path, "w");
        fputs(before[i], file);
        fclose(file);
        assert_ok(jsonl_open(path, &lines));
        assert_ok(jsonl_write(lines, cJSON_CreateObject()));
        jsonl_close(lines);
        file = fopen(path, "r");
        text[fread(text, 1, sizeof text - 1, file)] = 0;
        fclose(file);
        assert_string_equal(text, after[i]);
    }
}

TEST_IN_FOLDER(full_disk_is_an_error_with_the_name)
{
    char path[256];
    jsonl *file;
    struct rlimit before, none;
    snprintf(path, sizeof path, "%s/metrics.jsonl", (const char *)*state);
    assert_ok(jsonl_open(path, &file));
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    none = (struct rlimit){0, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    assert_fails(jsonl_write(file, cJSON_CreateObject()), TW_ERROR_IO, path);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    jsonl_close(file);
}

/* What is written to a file without a name is lost. */
TEST_IN_FOLDER(a_file_that_is_gone_is_an_error)
{
    char path[256], other[256];
    jsonl *file;
    snprintf(path, sizeof path, "%s/metrics.jsonl", (const char *)*state);
    snprintf(other, sizeof other, "%s/other", (const char *)*state);
    assert_ok(jsonl_open(path, &file));
    assert_ok(jsonl_write(file, cJSON_CreateObject()));
    assert_int_equal(rename(path, other), 0);
    assert_fails(jsonl_write(file, cJSON_CreateObject()), TW_ERROR_IO, path);
    fclose(fopen(path, "w"));
    assert_fails(jsonl_write(file, cJSON_CreateObject()), TW_ERROR_IO, path);
    jsonl_close(file);
}

TEST_IN_FOLDER(what_is_no_file_is_refused_at_once)
{
    char path[256];
    jsonl *file;
    snprintf(path, sizeof path, "%s/pipe", (const char *)*state);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_fails(jsonl_open(path, &file), TW_ERROR_IO, "not a regular file");
    assert_fails(jsonl_open(*state, &file), TW_ERROR_IO, "not a regular file");
}

RUN_TESTS(NULL, NULL)
