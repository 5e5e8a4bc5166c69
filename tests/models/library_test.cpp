// The models that come with Adjoint are the published ones: exact parameter counts, structure,
// init.
#include <cmath>
#include <fstream>
#include <set>

#include "base/error_text.h"
#include "base/file.h"
#include "base/temp_folder.h"
#include "models/call_names.h"
#include "models/small_models.h"

namespace adjoint {
namespace {

using Strings = std::vector<std::string>;

int64_t gpt2_count(int64_t layers, int64_t hidden, int64_t context, int64_t vocab) {
  const int64_t norms = 4 * hidden, biases = (3 + 1 + 4 + 1) * hidden;
  const int64_t products = (3 + 1 + 4 + 4) * hidden * hidden;
  return (vocab + context) * hidden + layers * (norms + biases + products) + 2 * hidden;
}

int64_t llama_count(int64_t layers, int64_t hidden, int64_t kv_width, int64_t ffn, int64_t vocab,
                    bool tied) {
  const int64_t attention = 2 * hidden * hidden + 2 * hidden * kv_width;
  return (tied ? 1 : 2) * vocab * hidden + layers * (attention + 3 * hidden * ffn + 2 * hidden) +
         hidden;
}

TEST(Library, ParameterCountsAreThePublishedOnes) {
  EXPECT_EQ(num_parameters(elaborate_preset("gpt2")), 124'439'808);
  EXPECT_EQ(num_parameters(elaborate_preset("gpt2-medium")), 354'823'168);
  EXPECT_EQ(num_parameters(elaborate_preset("gpt2-large")), 774'030'080);
  EXPECT_EQ(num_parameters(elaborate_preset("gpt2-xl")), 1'557'611'200);
  EXPECT_EQ(num_parameters(elaborate_preset("gpt3-175b")), gpt2_count(96, 12288, 2048, 50257));
  EXPECT_EQ(num_parameters(elaborate_preset("ref")), 4'339'200);
  EXPECT_EQ(num_parameters(elaborate_preset("char")), gpt2_count(4, 128, 64, 65));
  EXPECT_EQ(num_parameters(elaborate_preset("llama2-7b")), 6'738'415'616);
  EXPECT_EQ(num_parameters(elaborate_preset("llama3-8b")), 8'030'261'248);
  EXPECT_EQ(num_parameters(elaborate_preset("llama3.1-8b")), 8'030'261'248);
  EXPECT_EQ(num_parameters(elaborate_preset("llama3.2-1b")), 1'235'814'400);
  EXPECT_EQ(num_parameters(elaborate_preset("llama3.2-3b")), 3'212'749'824);
  EXPECT_EQ(num_parameters(elaborate_preset("qwen2-0.5b")), 494'032'768);
  EXPECT_EQ(num_parameters(elaborate_preset("qwen2-7b")), 7'615'616'512);
  EXPECT_EQ(num_parameters(elaborate_preset("qwen3-30b-a3b")), 30'532'122'624);
  EXPECT_EQ(num_parameters(elaborate_preset("llama-tiny")),
            llama_count(2, 64, 32, 176, 101, false));
}

TEST(Library, TheFormulasOfThisTestAgreeWithThePublishedCounts) {
  EXPECT_EQ(gpt2_count(12, 768, 1024, 50257), 124'439'808);
  EXPECT_EQ(llama_count(32, 4096, 1024, 14336, 128256, false), 8'030'261'248);
  EXPECT_EQ(llama_count(16, 2048, 512, 8192, 128256, true), 1'235'814'400);
}

// Angles are stretched in the presets that were published so, and in no other.
TEST(Library, LlamaStretchesItsAnglesAsPublished) {
  const auto angles = [](const std::string& preset) {
    const Scheme scheme = elaborate_preset(preset, {{"layers", 2}});
    std::vector<Attrs> tables;
    for (const Morphism& m : scheme.morphisms) {
      if (m.op == "rotary_table") tables.push_back(m.attrs);
    }
    EXPECT_EQ(tables.size(), 1u) << preset;
    return tables.at(0);
  };
  using List = std::vector<int64_t>;
  const Attrs plain = {{"base", 500000.0}, {"shape", List{8192, 1, 128}}};
  EXPECT_EQ(angles("llama3-8b"), plain);
  for (const auto& [preset, dim, factor] :
       {std::tuple("llama3.1-8b", 128, 8.0), std::tuple("llama3.2-1b", 64, 32.0),
        std::tuple("llama3.2-3b", 128, 32.0)}) {
    const Attrs stretched = {{"base", 500000.0},
                             {"shape", List{131072, 1, dim}},
                             {"scaling", std::string("llama3")},
                             {"factor", factor},
                             {"low", 1.0},
                             {"high", 4.0},
                             {"original", 8192.0}};
    EXPECT_EQ(angles(preset), stretched) << preset;
  }
  for (const char* preset : {"llama2-7b", "llama-110m", "llama-tiny"}) {
    EXPECT_FALSE(angles(preset).count("scaling")) << preset;
  }
}

TEST(Library, PresetsHaveNamesOfTheirOwn) {
  const Strings presets = known_presets();
  EXPECT_EQ(std::set<std::string>(presets.begin(), presets.end()).size(), presets.size());
  EXPECT_GE(presets.size(), 12u);
}

TEST(Library, EveryTextIsWhatStandsInTheFolder) {
  for (const LibraryText& text : library_texts()) {
    EXPECT_EQ(text.text, read_file(std::string(SOURCE_DIR "/models/") + std::string(text.name)));
  }
  EXPECT_GE(library_texts().size(), 2u);
}

TEST(Library, EveryModuleOfAFormatMayBeACall) {
  for (const LibraryText& text : library_texts()) {
    const Document document = parse_document(text.text, text.name);
    for (const Format& format : document.formats) {
      for (const FormatModule* module : impossible_modules(document, format)) {
        ADD_FAILURE() << text.name << ": " << module->ours;
      }
    }
  }
}

TEST(Library, EveryTextPrintsAndParsesBack) {
  for (const LibraryText& text : library_texts()) {
    const Document document = parse_document(text.text, text.name);
    EXPECT_EQ(parse_document(print(document), text.name), document) << print(document);
    EXPECT_EQ(print(parse_document(print(document), text.name)), print(document));
  }
}

TEST(Library, EverySchemePrintsAndParsesBack) {
  for (const std::string& preset : known_presets()) {
    const bool has_dropout = find_model(preset).file == "models/gpt2.scheme";
    std::map<std::string, double> settings = {{"batch", 2}};
    if (has_dropout) settings["dropout"] = 0.1;
    const Scheme scheme = elaborate_preset(preset, settings);
    EXPECT_EQ(scheme.name, preset);
    EXPECT_EQ(parse_scheme(print(scheme)), scheme) << preset;
  }
}

TEST(Library, ALossIsAPairOfSumAndCount) {
  for (const char* preset : {"char", "llama-tiny"}) {
    const Scheme scheme = elaborate_preset(preset);
    ASSERT_EQ(scheme.outputs.size(), 2u);
    const Morphism& last = scheme.morphisms.back();
    EXPECT_EQ(last.op, "cross_entropy");
    EXPECT_EQ(scheme.outputs[0], last.outputs[0]);
    EXPECT_EQ(scheme.outputs[1], last.outputs[1]);
  }
}

TEST(Library, InputsAreTokensAndTargets) {
  const Scheme scheme = elaborate_preset("char", {{"batch", 3}});
  EXPECT_EQ(paths_of(scheme, Role::kInput), (Strings{"tokens", "targets"}));
  for (const char* path : {"tokens", "targets"}) {
    EXPECT_EQ(to_string(object_at(scheme, path).type), "i32[batch=3, seq=64]");
  }
}

TEST(Library, PathsOfGpt2) {
  const Scheme scheme = elaborate_preset("char", {{"layers", 2}});
  Strings wanted = {"wte.weight", "wpe.weight"};
  for (const std::string block : {"block[0].", "block[1]."}) {
    for (const char* call : {"layer_norm#1", "qkv", "proj", "layer_norm#2", "up", "down"}) {
      wanted.push_back(block + call + ".weight");
      wanted.push_back(block + call + ".bias");
    }
  }
  wanted.push_back("layer_norm#1.weight");
  wanted.push_back("layer_norm#1.bias");
  EXPECT_EQ(paths_of(scheme, Role::kParameter), wanted);
  EXPECT_EQ(call_at(scheme, "block[1].add#2").op, "add");
  EXPECT_EQ(call_at(scheme, "block[0].attention#1").op, "attention");
}

TEST(Library, PathsOfLlama) {
  const Scheme scheme = elaborate_preset("llama-tiny", {{"layers", 1}});
  Strings wanted = {"wte.weight"};
  for (const char* call : {"rms_norm#1", "q", "k", "v", "o", "rms_norm#2", "gate", "up", "down"}) {
    wanted.push_back(std::string("block[0].") + call + ".weight");
  }
  wanted.push_back("rms_norm#1.weight");
  wanted.push_back("readout.weight");
  EXPECT_EQ(paths_of(scheme, Role::kParameter), wanted);
}

TEST(Library, TiedWeightsAreOneObject) {
  const Scheme gpt = elaborate_preset("char");
  EXPECT_EQ(call_at(gpt, "readout").inputs[1], call_at(gpt, "wte").inputs[1]);
  EXPECT_EQ(call_at(gpt, "readout").inputs.size(), 2u) << "the readout has no bias";

  const Scheme untied = elaborate_preset("llama-tiny");
  EXPECT_NE(call_at(untied, "readout").inputs[1], call_at(untied, "wte").inputs[1]);
  const Scheme tied = elaborate_preset("llama-tiny", {{"tied", 1}});
  EXPECT_EQ(call_at(tied, "readout").inputs[1], call_at(tied, "wte").inputs[1]);
  EXPECT_EQ(num_parameters(untied) - num_parameters(tied), 64 * 101);
}

TEST(Library, InitialScales) {
  const Scheme scheme = elaborate_preset("gpt2");
  const auto is = [&](const std::string& path, Init wanted) {
    EXPECT_EQ(object_at(scheme, path).init, wanted) << path;
  };
  is("wte.weight", {Init::Kind::kNormal, 0.02});
  is("wpe.weight", {Init::Kind::kNormal, 0.02});
  is("block[3].qkv.weight", {Init::Kind::kNormal, 0.02});
  is("block[3].up.weight", {Init::Kind::kNormal, 0.02});
  is("block[3].proj.weight", {Init::Kind::kNormal, 0.02 / std::sqrt(24.0)});
  is("block[3].down.weight", {Init::Kind::kNormal, 0.02 / std::sqrt(24.0)});
  is("block[3].qkv.bias", {});
  is("block[3].layer_norm#1.weight", {Init::Kind::kOnes});
  is("block[3].layer_norm#1.bias", {});
  // The scale speaks of the layers that there are.
  EXPECT_EQ(
      object_at(elaborate_preset("gpt2", {{"layers", 2}}), "block[0].proj.weight").init->scale,
      0.02 / 2);
}

TEST(Library, Gpt2CallsWhatItShould) {
  const Scheme scheme = elaborate_preset("gpt2", {{"batch", 2}, {"seq", 5}, {"layers", 1}});
  const Morphism attention = call_at(scheme, "block[0].attention#1");
  EXPECT_EQ(attention.attrs.at("heads"), Attr{int64_t{12}});
  EXPECT_EQ(attention.attrs.at("causal"), Attr{int64_t{1}});
  EXPECT_EQ(call_at(scheme, "block[0].gelu#1").attrs.at("approximate"), Attr{std::string("tanh")});
  EXPECT_EQ(call_at(scheme, "layer_norm#1").attrs.at("eps"), Attr{1e-5});
  EXPECT_EQ(to_string(object_at(scheme, "block[0].qkv").type),
            "f32[batch=2, seq=5, 3*hidden=2304]");
  EXPECT_EQ(to_string(object_at(scheme, "block[0].up").type), "f32[batch=2, seq=5, ffn=3072]");
  EXPECT_EQ(to_string(object_at(scheme, "wpe").type), "f32[seq=5, hidden=768]");
  EXPECT_EQ(to_string(object_at(scheme, "position").type), "i32[seq=5]");
  EXPECT_EQ(to_string(object_at(scheme, "readout").type), "f32[batch=2, seq=5, vocab=50257]");
}

TEST(Library, LlamaCallsWhatItShould) {
  const Scheme scheme = elaborate_preset("llama3-8b", {{"layers", 1}, {"seq", 7}});
  const Morphism attention = call_at(scheme, "block[0].attention#1");
  EXPECT_EQ(attention.attrs.at("heads"), Attr{int64_t{32}});
  EXPECT_EQ(attention.attrs.at("kv_heads"), Attr{int64_t{8}});
  ASSERT_EQ(attention.inputs.size(), 3u);
  EXPECT_EQ(scheme[attention.inputs[0]].source.path, "block[0].rotary#1");
  EXPECT_EQ(scheme[attention.inputs[1]].source.path, "block[0].rotary#2");
  EXPECT_EQ(scheme[attention.inputs[2]].source.path, "block[0].v");
  EXPECT_EQ(call_at(scheme, "rotary_table").attrs.at("base"), Attr{500000.0});
  EXPECT_EQ(to_string(object_at(scheme, "block[0].k").type),
            "f32[batch=1, seq=7, kv_heads*dim=1024]");
  const Morphism gated = call_at(scheme, "block[0].mul#1");
  EXPECT_EQ(scheme[gated.inputs[0]].source.path, "block[0].silu#1");
  EXPECT_EQ(scheme[gated.inputs[1]].source.path, "block[0].up");
}

TEST(Library, DropoutIsThereOnlyWithARate) {
  const auto dropouts = [](const Scheme& scheme) {
    Strings paths;
    for (const Morphism& m : scheme.morphisms) {
      if (m.op == "dropout") paths.push_back(m.source.path);
    }
    return paths;
  };
  EXPECT_EQ(dropouts(elaborate_preset("char", {{"layers", 1}})), Strings{});
  const Scheme with = elaborate_preset("char", {{"layers", 1}, {"dropout", 0.1}});
  EXPECT_EQ(dropouts(with), (Strings{"dropout#1", "block[0].dropout#1", "block[0].dropout#2"}));
  EXPECT_EQ(paths_of(with, Role::kControl), Strings{"random"});
  EXPECT_EQ(call_at(with, "block[0].dropout#2").attrs.at("rate"), Attr{0.1});
  EXPECT_EQ(call_at(with, "block[0].dropout#2").attrs.at("key"),
            Attr{std::string("block[0].dropout#2")});
}

TEST(Library, FindsPresetsAndFiles) {
  const ModelText preset = find_model("gpt2-medium");
  EXPECT_EQ(preset.file, "models/gpt2.scheme");
  EXPECT_EQ(preset.preset, "gpt2-medium");

  const TempFolder folder;
  const std::string path = (folder / "my.scheme").string();
  std::ofstream(path) << "model x[batch]:\n  y = x\n";
  EXPECT_EQ(find_model(path).file, path);
  EXPECT_EQ(find_model(path).preset, "");
  EXPECT_EQ(find_model(path + ":small").preset, "small");
  EXPECT_EQ(find_model(path + ":small").text, "model x[batch]:\n  y = x\n");
}

TEST(Library, UnknownModelsAreRefusedWithTheNearestName) {
  const std::string text = error_text([] { find_model("gpt2-mediun"); });
  EXPECT_EQ(text, "there is no model 'gpt2-mediun'; did you mean 'gpt2-medium'?");
  EXPECT_EQ(error_text([] { find_model("gpt3"); }),
            "there is no model 'gpt3'; did you mean 'gpt3-175b'?");
  EXPECT_TRUE(has(error_text([] { find_model("something else"); }), "adjoint models lists them"));
  EXPECT_TRUE(has(error_text([] { find_model("no/such.scheme"); }), "no/such.scheme"));
  EXPECT_TRUE(has(error_text([] { find_model(""); }), "there is no model ''"));
}

// A text may use the boxes of another: its settings and its model are the text's own.
TEST(Library, BoxesMayStandInFilesOfTheirOwn) {
  const TempFolder folder;
  const auto write = [&](const char* name, const std::string& text) {
    std::ofstream(folder / name) << text;
    return (folder / name).string();
  };
  write("deep.scheme", "numbers slope=2\ndeep x:\n  y = slope*x\n");
  write("parts.scheme",
        "axes hidden=3 unused=7\n"
        "use \"deep.scheme\"\n"
        "half x:\n  y = deep(linear(x, hidden))\n"
        "wrong x:\n  y = no_such_op(x)\n"
        "model x:\n  y = x\n");
  const std::string main = write("main.scheme",
                                 "use \"parts.scheme\"  # half\n"
                                 "use \"deep.scheme\"\n"
                                 "axes hidden=5\n"
                                 "preset bad:\n"
                                 "model x f32[batch, hidden]:\n  y = deep(half(x))\n");
  const ModelText text = find_model(main);
  // The text is whole by itself: a run saves it, and it is read back under another name.
  for (const char* file : {main.c_str(), "saved.scheme"}) {
    const Scheme s = elaborate(parse_document(text.text, file), file, {});
    EXPECT_EQ(to_string(object_at(s, "half.linear#1.weight").type), "f32[hidden=5, hidden=5]");
    EXPECT_EQ(call_at(s, "half.deep.scale#1").attrs.at("by"), Attr{2.0});
  }
  // Mistakes are told where they are.
  const auto said = [&](const std::string& body) {
    const std::string path = write("wrong.scheme", body);
    return error_text([&] {
      const ModelText wrong = find_model(path);
      elaborate(parse_document(wrong.text, wrong.file), wrong.file, {});
    });
  };
  const std::string inner =
      said("use \"parts.scheme\"\nmodel x f32[batch, hidden]:\n  y = wrong(x)\n");
  EXPECT_TRUE(has(inner, "parts.scheme:6:7: no_such_op: ")) << inner;
  const std::string outer =
      said("use \"parts.scheme\"\nmodel x f32[batch, hidden]:\n  y = hlaf(x)\n");
  EXPECT_TRUE(has(outer, "wrong.scheme:3:7: hlaf: ")) << outer;
  EXPECT_TRUE(has(outer, "did you mean 'half'?")) << outer;
  EXPECT_TRUE(
      has(said("use \"none.scheme\"\nmodel x:\n  y = x\n"), "wrong.scheme:1:1: there is no file"));
  EXPECT_TRUE(has(said("use parts\nmodel x:\n  y = x\n"), "wrong.scheme:1:1: wanted use \""));
  EXPECT_TRUE(has(said("use \"wrong.scheme\"\nmodel x:\n  y = x\n"), "uses itself"));
  EXPECT_TRUE(has(said("half x:\n  y = x\nuse \"parts.scheme\"\nmodel x:\n  y = x\n"),
                  "parts.scheme:3:1: box 'half' is written twice"));
  // One of ours.
  EXPECT_EQ(said("use \"llama.scheme\"\nmodel x f32[batch, seq, hidden]:\n  y = block(x)\n"), "");
}

}  // namespace
}  // namespace adjoint
