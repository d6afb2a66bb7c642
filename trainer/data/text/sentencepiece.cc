// libsentencepiece for C: what it reports and what it throws become a tw_status.
#include "sentencepiece.h"

#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>
#include <string>
#include <thinwire/thinwire_plugin.h>
#include <unordered_map>
#include <vector>

struct piece_model {
    sentencepiece::SentencePieceProcessor processor;
};

namespace
{

// Its sentences stand behind the place in its source and what was checked there.
tw_status translate(const sentencepiece::util::Status &status)
{
    if (status.ok()) return TW_OK;
    const std::string text = status.error_message();
    const size_t check = text.rfind("] ");
    return tw_fail(TW_ERROR_FORMAT, "SentencePiece: %s",
                   text.c_str() + (check == std::string::npos || check + 2 == text.size() ? 0 : check + 2));
}

// How many pieces it may be it says by options of its own.
tw_status translate_training(const sentencepiece::util::Status &status, size_t count)
{
    if (status.ok()) return TW_OK;
    const std::string text = status.error_message();
    const size_t least = text.find(" vs "), most = text.find("value <= ");
    if (text.find("sentences_.empty()") != std::string::npos)
        return tw_fail(TW_ERROR_ARGUMENT, "the training text has no line with anything in it to make pieces of");
    if (least != std::string::npos)
        return tw_fail(TW_ERROR_ARGUMENT, "%zu pieces are too few for this text: --vocabulary must be %ld or more",
                       count, atol(text.c_str() + least + 4));
    if (most != std::string::npos)
        return tw_fail(TW_ERROR_ARGUMENT, "this text makes no %zu pieces: --vocabulary must be %ld or less", count,
                       atol(text.c_str() + most + 9));
    return translate(status);
}

// No exception passes into C.
template <typename Action> tw_status guarded(Action action)
{
    try {
        return action();
    } catch (const std::exception &e) {
        return tw_fail(TW_ERROR_MEMORY, "SentencePiece: %s", e.what());
    }
}

template <typename Value> tw_status copy_out(const void *from, size_t count, Value **out)
{
    *out = static_cast<Value *>(malloc((count + 1) * sizeof **out));
    if (!*out) return tw_fail(TW_ERROR_MEMORY, "no memory for %zu tokens", count);
    if (count > 0) memcpy(*out, from, count * sizeof **out);
    (*out)[count] = 0;
    return TW_OK;
}

class Source : public sentencepiece::SentenceIterator
{
  public:
    Source(piece_source next, void *context) : next_(next), context_(context)
    {
        Read();
    }
    bool done() const override
    {
        return done_;
    }
    void Next() override
    {
        Read();
    }
    const std::string &value() const override
    {
        return value_;
    }
    sentencepiece::util::Status status() const override
    {
        return {};
    }

  private:
    void Read()
    {
        size_t size = 0;
        const char *text = next_(context_, &size);
        done_ = text == nullptr;
        value_.assign(done_ ? "" : text, size);
    }

    piece_source next_;
    void *context_;
    std::string value_;
    bool done_ = false;
};

} // namespace

extern "C" tw_status piece_model_open(const uint8_t *bytes, size_t size, piece_model **out)
{
    return guarded([&] {
        auto model = std::make_unique<piece_model>();
        const tw_status status =
            translate(model->processor.LoadFromSerializedProto({reinterpret_cast<const char *>(bytes), size}));
        if (status == TW_OK) *out = model.release();
        return status;
    });
}

extern "C" void piece_model_close(piece_model *m)
{
    delete m;
}

extern "C" tw_status piece_model_encode(const piece_model *m, const char *text, size_t size, uint32_t **ids,
                                        size_t *count)
{
    return guarded([&] {
        std::vector<int> found;
        const tw_status status = translate(m->processor.Encode({text, size}, &found));
        *count = found.size();
        return status == TW_OK ? copy_out(found.data(), found.size(), ids) : status;
    });
}

extern "C" tw_status piece_model_decode(const piece_model *m, const uint32_t *ids, size_t count, char **text,
                                        size_t *size)
{
    return guarded([&] {
        std::string found;
        const tw_status status = translate(m->processor.Decode(std::vector<int>(ids, ids + count), &found));
        *size = found.size();
        return status == TW_OK ? copy_out(found.data(), found.size(), text) : status;
    });
}

extern "C" tw_status piece_model_train(piece_source next, void *context, size_t count, int exactly, uint8_t **bytes,
                                       size_t *size)
{
    return guarded([&] {
        Source source(next, context);
        std::string model;
        const std::unordered_map<std::string, std::string> options = {{"model_type", "bpe"},
                                                                      {"vocab_size", std::to_string(count)},
                                                                      {"hard_vocab_limit", exactly ? "true" : "false"},
                                                                      {"normalization_rule_name", "identity"},
                                                                      {"add_dummy_prefix", "false"},
                                                                      {"remove_extra_whitespaces", "false"},
                                                                      {"byte_fallback", "true"},
                                                                      {"bos_id", "-1"},
                                                                      {"eos_id", "-1"},
                                                                      {"num_threads", "1"},
                                                                      {"minloglevel", "2"}};
        const tw_status status =
            translate_training(sentencepiece::SentencePieceTrainer::Train(options, &source, &model), count);
        *size = model.size();
        return status == TW_OK ? copy_out(model.data(), model.size(), bytes) : status;
    });
}
