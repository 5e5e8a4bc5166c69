#include "data/corpus.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <numeric>

#include "base/error_text.h"
#include "base/file.h"
#include "base/half.h"
#include "base/temp_folder.h"

namespace adjoint {
namespace {

std::vector<int32_t> count_to(size_t n) {
  std::vector<int32_t> tokens(n);
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

std::vector<int32_t> crop_of(const Field& field, int64_t start, int64_t count) {
  std::vector<int32_t> ids(count * field.width);
  copy_crop(field, start, count, ids.data());
  return ids;
}

// A text whose documents end at `ends`.
TokenStream stream_of(const std::vector<int32_t>& ids, const std::vector<int64_t>& ends) {
  TokenStream stream;
  stream.add(std::make_shared<TokenShard>(std::vector<uint32_t>(ids.begin(), ids.end()), ends));
  return stream;
}
std::unique_ptr<TextCorpus> text_of(size_t n, double val_fraction) {
  std::vector<TextCorpus::Part> parts;
  parts.push_back({"book.txt", stream_of(count_to(n), {static_cast<int64_t>(n)})});
  return std::make_unique<TextCorpus>(std::move(parts), val_fraction);
}

// What a field of the split has, gone through once.
std::vector<int32_t> once_through(const Corpus& corpus, const std::string& field, Split split,
                                  const Sampling& sampling) {
  const FieldWish wish{.name = field};
  const Batches batches = corpus.batches(std::span(&wish, 1), split, sampling);
  std::vector<int32_t> all, row(sampling.context);
  for (int64_t n = 0; n < batches.count_in_order(); ++n) {
    void* const to[] = {row.data()};
    batches.fill_in_order(n, to);
    all.insert(all.end(), row.begin(), row.end());
  }
  return all;
}

TEST(Corpus, TheFirstPartTrainsAndTheRestValidates) {
  const auto corpus = text_of(10, 0.25);  // 7.5 rounds down
  EXPECT_EQ(corpus->size(Split::kTrain), 7);
  EXPECT_EQ(corpus->size(Split::kValidation), 3);
  const Sampling ones{.batch = 1, .context = 1};  // the last token is a target only
  EXPECT_EQ(once_through(*corpus, "tokens", Split::kTrain, ones),
            std::vector<int32_t>({0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(once_through(*corpus, "targets", Split::kTrain, ones),
            std::vector<int32_t>({1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(once_through(*corpus, "tokens", Split::kValidation, ones),
            std::vector<int32_t>({7, 8}));
}

TEST(Corpus, SplitsTinyShakespeareAsNanoGptDoes) {
  // The sizes that nanoGPT's data/shakespeare_char/prepare.py states.
  const auto corpus = text_of(1'115'394, 0.1);
  EXPECT_EQ(corpus->size(Split::kTrain), 1'003'854);
  EXPECT_EQ(corpus->size(Split::kValidation), 111'540);
}

TEST(Corpus, NothingIsLostAtAnyFraction) {
  for (const size_t size : {1, 2, 7, 100}) {
    for (const double fraction : {0.0, 0.1, 1.0 / 3, 0.5, 0.999}) {
      const auto corpus = text_of(size, fraction);
      EXPECT_EQ(corpus->size(Split::kTrain) + corpus->size(Split::kValidation), size);
      EXPECT_TRUE(fraction > 0 || corpus->size(Split::kValidation) == 0);
    }
  }
}

TEST(Corpus, RefusesAFractionThatLeavesNothingToTrain) {
  for (const double fraction : {-0.1, 1.0, 1.5, std::nan(""), HUGE_VAL}) {
    EXPECT_TRUE(has(error_text([&] { text_of(10, fraction); }), "fraction"));
  }
}

TEST(Corpus, RefusesWhatATextDoesNotHave) {
  const auto corpus = text_of(10, 0);
  const auto error = [&](const FieldWish& wish) {
    return error_text(
        [&] { corpus->batches(std::span(&wish, 1), Split::kTrain, {.batch = 1, .context = 2}); });
  };
  EXPECT_TRUE(
      has(error({.name = "teacher"}),
          "'teacher' is given by nobody: a text has tokens, targets, segments and positions only"));
  EXPECT_EQ(error({.name = "segments", .row = {3}}),
            "book.txt: 'segments' is wanted as whole numbers [10,3], but 'segments' of a text are "
            "one whole number a token");
  EXPECT_EQ(error({.name = "tokens"}), "");
}

// Writes fields to a file of its own.
class FieldsFile {
 public:
  template <class T>
  FieldsFile& add(const std::string& name, const std::string& dtype, std::vector<int64_t> shape,
                  const std::vector<T>& values) {
    const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
    const int64_t size = static_cast<int64_t>(values.size() * sizeof(T));
    bytes_.push_back(std::make_unique<std::vector<std::byte>>(bytes, bytes + size));
    views_.push_back({.name = name,
                      .dtype = dtype,
                      .shape = std::move(shape),
                      .data = bytes_.back()->data(),
                      .size = {size}});
    return *this;
  }
  std::filesystem::path write() {
    AtomicFile file(folder_ / "data.safetensors");
    write_safetensors(file, views_, {});
    file.commit();
    return folder_ / "data.safetensors";
  }

 private:
  TempFolder folder_;
  std::vector<std::unique_ptr<std::vector<std::byte>>> bytes_;
  std::vector<SafetensorView> views_;
};

std::vector<float> floats_of(const Field& field, int64_t start, int64_t count) {
  std::vector<float> numbers(count * field.width);
  copy_crop(field, start, count, numbers.data());
  return numbers;
}

TEST(Corpus, FieldsAreReadInAnyDtype) {
  std::vector<BFloat16> teacher;
  std::vector<Float16> halves;
  for (int i = 0; i < 12; ++i) {
    teacher.emplace_back(0.5f * static_cast<float>(i));
    halves.emplace_back(-0.25f * static_cast<float>(i));
  }
  FieldsFile file;
  file.add<uint16_t>("tokens", "U16", {6}, {3, 65535, 4, 1, 5, 9})
      .add<int64_t>("segments", "I64", {6}, {0, 0, 1, 1, -1, 2})
      .add<uint8_t>("odd", "U8", {6}, {1, 2, 3, 4, 5, 6})
      .add<double>("weights", "F64", {6}, {0, 0.5, 1, 1.5, 2, 2.5})
      .add("teacher", "BF16", {6, 2}, teacher)
      .add("halves", "F16", {6, 2, 1}, halves);
  const FieldsCorpus corpus(file.write(), 0.5);
  ASSERT_EQ(corpus.size(Split::kTrain), 3);
  const auto at = [&](FieldWish wish) { return corpus.field(wish, Split::kValidation); };
  using Ids = std::vector<int32_t>;
  using Floats = std::vector<float>;
  EXPECT_EQ(crop_of(corpus.field({.name = "tokens"}, Split::kTrain), 0, 3), Ids({3, 65535, 4}));
  EXPECT_EQ(crop_of(at({.name = "tokens"}), 1, 2), Ids({5, 9}));
  EXPECT_EQ(crop_of(at({.name = "targets"}), 0, 2), Ids({5, 9})) << "the next token";
  EXPECT_EQ(crop_of(at({.name = "segments"}), 0, 3), Ids({1, -1, 2}));
  EXPECT_EQ(crop_of(at({.name = "odd"}), 1, 2), Ids({5, 6}));
  EXPECT_EQ(floats_of(at({.name = "weights", .floating = true}), 0, 2), Floats({1.5, 2}));
  EXPECT_EQ(floats_of(at({.name = "teacher", .row = {2}, .floating = true}), 1, 2),
            Floats({4, 4.5, 5, 5.5}));
  EXPECT_EQ(floats_of(at({.name = "halves", .row = {2, 1}, .floating = true}), 0, 1),
            Floats({-1.5, -1.75}));
}

TEST(Corpus, TargetsOfAFileAreItsOwn) {
  FieldsFile file;
  file.add<int32_t>("tokens", "I32", {4}, {1, 2, 3, 4})
      .add<int32_t>("targets", "I32", {4}, {9, 8, -1, 7});
  const FieldsCorpus corpus(file.write(), 0);
  EXPECT_EQ(crop_of(corpus.field({.name = "targets"}, Split::kTrain), 1, 3),
            std::vector<int32_t>({8, -1, 7}));
}

TEST(Corpus, RefusesFieldsByNameWithWantedAndFound) {
  FieldsFile file;
  file.add<int32_t>("tokens", "I32", {4}, {1, 2, 3, 4})
      .add<float>("teacher", "F32", {4, 2}, {1, 2, 3, 4, 5, 6, 7, 8})
      .add<int64_t>("ids", "I64", {4}, {0, 3000000000, -1, 2})
      .add<int32_t>("large", "I32", {4}, {16777216, 16777217, 0, 2});
  const std::filesystem::path path = file.write();
  const FieldsCorpus corpus(path, 0);
  const auto error = [&](const FieldWish& wish) {
    const std::string text = error_text([&] { corpus.field(wish, Split::kTrain); });
    EXPECT_TRUE(text.starts_with(path.string() + ": ")) << text;
    return text.substr(std::min(text.size(), path.string().size() + 2));
  };
  EXPECT_EQ(error({.name = "techer", .row = {2}, .floating = true}),
            "there is no field 'techer', wanted as floating numbers [4,2]; there are ids, tokens, "
            "teacher, large; did you mean 'teacher'?");
  EXPECT_EQ(error({.name = "teacher", .row = {3}, .floating = true}),
            "field 'teacher' is wanted as floating numbers [4,3], found F32[4,2]");
  EXPECT_EQ(error({.name = "teacher", .row = {2}}),
            "field 'teacher' is wanted as whole numbers [4,2], found F32[4,2]");
  const auto entries = [&](const std::string& name, std::optional<int64_t> below,
                           std::optional<int64_t> also = {}) {
    const std::string text = error_text([&] { corpus.check_entries({.name = name}, below, also); });
    return text.substr(std::min(text.size(), path.string().size() + 2));
  };
  EXPECT_EQ(entries("tokens", 5), "");
  EXPECT_EQ(entries("tokens", 4), "field 'tokens' holds 4 at token 3, wanted 0 to 3");
  EXPECT_EQ(entries("tokens", 4, 4), "") << "it is ignored";
  EXPECT_EQ(entries("targets", 4, -1),
            "field 'targets' holds 4 at token 3, wanted 0 to 3, or -1 to ignore it");
  EXPECT_EQ(entries("ids", {}),
            "field 'ids' holds 3000000000 at token 1, wanted -2147483648 to 2147483647");
  const auto computed_with = [&](const std::string& name, std::optional<int64_t> below) {
    const FieldWish wish{.name = name, .computed_with = true};
    const std::string text = error_text([&] { corpus.check_entries(wish, below, {}); });
    return text.substr(std::min(text.size(), path.string().size() + 2));
  };
  EXPECT_EQ(computed_with("large", {}),
            "field 'large' holds 16777217 at token 1, wanted -16777216 to 16777216: the model "
            "computes with it in float32, which has no others");
  EXPECT_EQ(computed_with("tokens", {}), "");
  EXPECT_EQ(computed_with("tokens", 4), "field 'tokens' holds 4 at token 3, wanted 0 to 3");
  EXPECT_EQ(computed_with("large", 20000000),
            "field 'large' holds 16777217 at token 1, wanted 0 to 16777216: the model computes "
            "with it in float32, which has no others");
}

// -inf may be meant, as that of a mask is.
TEST(Corpus, RefusesFieldsThatHoldNoNumbers) {
  FieldsFile file;
  file.add<int32_t>("tokens", "I32", {3}, {1, 2, 3})
      .add<float>("good", "F32", {3, 2}, {1, 2, 3, -INFINITY, 5, 6})
      .add<float>("bad", "F32", {3, 2}, {1, 2, 3, 4, NAN, 6})
      .add<double>("wide", "F64", {3}, {1, NAN, 3})
      .add<double>("far", "F64", {3}, {1, 2, 1e300})
      .add<float>("odd", "F32", {3}, {1, INFINITY, 3});
  const std::filesystem::path path = file.write();
  const FieldsCorpus corpus(path, 0.5);
  const auto entries = [&](const FieldWish& wish) {
    return error_text([&] { corpus.check_entries(wish, {}, {}); });
  };
  EXPECT_EQ(entries({.name = "good", .row = {2}, .floating = true, .masks = true}), "");
  EXPECT_EQ(entries({.name = "good", .row = {2}, .floating = true}),
            path.string() + ": field 'good' holds -inf at token 1, wanted finite numbers");
  EXPECT_EQ(entries({.name = "odd", .floating = true}),
            path.string() + ": field 'odd' holds inf at token 1, wanted finite numbers");
  EXPECT_EQ(entries({.name = "odd", .floating = true, .masks = true}),
            path.string() + ": field 'odd' holds inf at token 1, wanted finite numbers or -inf");
  EXPECT_EQ(entries({.name = "far", .floating = true}),
            path.string() + ": field 'far' holds 1e+300 at token 2, which float32 has not");
  EXPECT_EQ(entries({.name = "bad", .row = {2}, .floating = true}),
            path.string() + ": field 'bad' holds nan at token 2, wanted numbers");
  EXPECT_EQ(entries({.name = "wide", .floating = true}),
            path.string() + ": field 'wide' holds nan at token 1, wanted numbers");
}

TEST(Corpus, AFileOfFieldsHasTokens) {
  FieldsFile none, wrong;
  none.add<float>("x", "F32", {1}, {1});
  const std::string missing = error_text([&] { FieldsCorpus(none.write(), 0); });
  EXPECT_TRUE(has(missing, "a field 'tokens', found x")) << missing;
  wrong.add<float>("tokens", "F32", {1}, {1});
  const std::string floats = error_text([&] { FieldsCorpus(wrong.write(), 0); });
  EXPECT_TRUE(has(floats, "whole numbers with one axis, found F32[1]")) << floats;
}

TEST(Corpus, AHashTellsFilesApart) {
  const auto hash = [](const std::string& name, std::vector<int32_t> extra) {
    FieldsFile file;
    file.add<int32_t>("tokens", "I32", {2}, {1, 2}).add(name, "I32", {2}, extra);
    return FieldsCorpus(file.write(), 0).hash();
  };
  EXPECT_EQ(hash("a", {5, 6}), hash("a", {5, 6}));
  EXPECT_NE(hash("a", {5, 6}), hash("b", {5, 6}));
  EXPECT_NE(hash("a", {5, 6}), hash("a", {5, 7}));
}

TEST(LoadText, GivesTheFile) {
  const TempFolder folder;
  write_file_atomically(folder / "x.txt", "some text\n");
  EXPECT_EQ(load_text(folder / "x.txt"), "some text\n");
}

TEST(LoadText, NamesAFileThatIsMissingEmptyOrAFolder) {
  const TempFolder folder;
  write_file_atomically(folder / "empty.txt", "");
  std::filesystem::create_directory(folder / "texts");
  for (const char* name : {"missing.txt", "empty.txt", "texts"}) {
    const std::string error = error_text([&] { load_text(folder / name); });
    EXPECT_TRUE(has(error, (folder / name).string())) << error;
  }
}

}  // namespace
}  // namespace adjoint
