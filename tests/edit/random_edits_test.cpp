// Texts that come with Adjoint, as the page sees them: nothing changes without an edit, and after
// random edits through the request's own interface everything outside of the edit is as it was.
#include <algorithm>
#include <random>
#include <set>

#include "edit/document_json.h"
#include "edit/edited.h"
#include "edit/functor_json.h"
#include "edit/same_scheme.h"
#include "functors/functor.h"
#include "models/call_names.h"
#include "models/elaborate.h"
#include "models/library.h"

namespace adjoint {
namespace {

using Json = nlohmann::json;

// Comments, of which no edit may lose any. A # in quotes begins none.
std::vector<std::string> comments_of(const std::string& text) {
  std::vector<std::string> found;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\n') quoted = false;
    if (text[i] == '"') quoted = !quoted;
    if (text[i] != '#' || quoted) continue;
    const size_t end = std::min(text.find('\n', i), text.size());
    found.push_back(text.substr(i, end - i));
    i = end - 1;
  }
  std::sort(found.begin(), found.end());
  return found;
}

void collect(const Json& json, std::vector<Json>& terms) {
  if (json.is_object() && json.contains("kind") && json.contains("span")) terms.push_back(json);
  if (json.is_structured()) {
    for (const Json& inner : json) collect(inner, terms);
  }
}

// What is printed of a term, read again, is the term; and it stands where its span says.
void expect_places_are_right(const std::string& text, const Json& terms, const char* what) {
  std::vector<Json> all;
  collect(terms, all);
  EXPECT_GT(all.size(), 0u) << what;
  for (const Json& term : all) {
    if (!term.contains("text") || term["span"].is_null()) continue;
    const size_t from = term["span"]["from"], to = term["span"]["to"];
    const std::string there = text.substr(from, to - from);
    if (term.contains("index")) continue;  // a rule of a functor
    EXPECT_EQ(print(parse_term(there, "t")), term["text"].get<std::string>()) << what;
    const size_t begin = text.rfind('\n', from);
    const size_t line_begin = begin == text.npos || from == 0 ? 0 : begin + 1;
    EXPECT_EQ(term["span"]["column"].get<size_t>(), from - line_begin + 1) << what << there;
    EXPECT_EQ(term["span"]["line"].get<int64_t>(),
              1 + std::count(text.begin(), text.begin() + static_cast<int64_t>(from), '\n'));
  }
}

TEST(Texts, ModelsStayWhatTheyAre) {
  for (const LibraryText& model : library_texts()) {
    const std::string text(model.text), file(model.name);
    const Json answer = answer_edit({{"file", file}, {"text", text}, {"read", true}});
    EXPECT_EQ(answer["text"], text);
    expect_places_are_right(text, answer["document"], file.c_str());
    for (const Json& box : answer["document"]["boxes"]) {
      for (const Json& s : box["statements"]) {
        for (size_t i = 0; i < s["names"].size(); ++i) {
          const size_t from = s["name_spans"][i]["from"], to = s["name_spans"][i]["to"];
          EXPECT_EQ(text.substr(from, to - from), s["names"][i].get<std::string>());
        }
      }
    }
  }
}

TEST(Texts, FunctorsStayWhatTheyAre) {
  for (const FunctorFile& functor : functor_files()) {
    const std::string text(functor.text), file(functor.name);
    const Json answer = answer_edit({{"file", file}, {"text", text}, {"read", true}});
    EXPECT_EQ(answer["text"], text);
    const Json& read = answer["functor"];
    // Lines of the functor are all of its text but comments, blanks and the head.
    for (const Json& rule : read["rules"]) {
      const size_t from = rule["span"]["from"], to = rule["span"]["to"];
      EXPECT_EQ(text.substr(from, to - from), rule["text"].get<std::string>()) << file;
      EXPECT_TRUE(rule["text"].get<std::string>().starts_with(rule["kind"].get<std::string>()));
    }
    expect_places_are_right(text, read, file.c_str());
  }
}

// The model in its smallest published sizes, dropout on, so that every call is there.
// `dropout` is what its rate is called by now.
std::optional<Scheme> small(const std::string& text, const std::string& file,
                            const std::string& dropout) {
  try {
    const Document document = parse_document(text, file);
    std::string preset;
    for (const Preset& p : document.presets) {
      if (p.name.ends_with("-tiny") || p.name == "char") preset = p.name;
    }
    return elaborate(document, file, {.preset = preset, .settings = {{dropout, 0.1}}});
  } catch (const Error&) {
    return std::nullopt;
  }
}

class RandomEdits {
 public:
  explicit RandomEdits(unsigned seed) : random_(seed) {}

  template <class List>
  const typename List::value_type& one_of(const List& list) {
    return list[static_cast<size_t>(below(static_cast<int64_t>(list.size())))];
  }
  std::string word(const std::vector<std::string>& words) { return one_of(words); }
  std::string fresh() { return "fresh_" + std::to_string(++count_); }

  // An edit that somebody might ask for, not always one that can be made.
  Json edit(const Json& document) {
    std::vector<Json> terms;
    for (const Json& box : document["boxes"]) collect(box["statements"], terms);
    const Json& term = one_of(terms);
    const Json at = {{"from", term["span"]["from"]}, {"to", term["span"]["to"]}};
    const Json& box = one_of(document["boxes"]);
    const int64_t statements = static_cast<int64_t>(box["statements"].size());
    const int64_t statement = below(statements);
    switch (below(12)) {
      case 0:
        return {{"kind", "insert"}, {"at", at}, {"call", word({"tanh(_)", "_*2", "1 - _"})}};
      case 1:
        return {{"kind", "delete"}, {"at", at}};
      case 2: {
        const Json& s = box["statements"][statement];
        return {{"kind", "rename"},
                {"box", box["name"]},
                {"statement", statement},
                {"name", one_of(s["names"])},
                {"to", fresh()}};
      }
      case 3:
        return {{"kind", "rename"},
                {"box", box["name"]},
                {"name", one_of(box["formals"])["name"]},
                {"to", fresh()}};
      case 4: {
        const bool axis = below(2) == 0;
        return {{"kind", "rename"},
                {axis ? "axis" : "number", one_of(document[axis ? "axes" : "numbers"])["name"]},
                {"to", fresh()}};
      }
      case 5:
        return {{"kind", "rename"}, {"box", box["name"]}, {"to", fresh()}};
      case 6: {
        const Json& other = one_of(box["statements"]);
        return {{"kind", "connect"}, {"at", at}, {"value", one_of(other["names"])}};
      }
      case 7:
        if (below(2)) {
          return {
              {"kind", "set"}, {"axis", one_of(document["axes"])["name"]}, {"to", below(9) + 1}};
        }
        return {{"kind", "set"}, {"at", at}, {"keyword", fresh()}, {"to", "2*3"}};
      case 8: {
        const int64_t last = std::min(statement + below(3), statements - 1);
        Json axes = Json::object();
        for (const Json& f : box["formals"]) axes[f["name"].get<std::string>()] = nullptr;
        for (const Json& s : box["statements"]) {
          for (const Json& name : s["names"]) axes[name.get<std::string>()] = nullptr;
        }
        Json fold = {{"kind", "fold"}, {"name", fresh()}, {"axes", axes}};
        if (below(3) == 0) {
          fold["at"] = at;
        } else {
          fold["box"] = box["name"];
          fold["statements"] = {statement, last};
        }
        return fold;
      }
      case 9: {
        const auto is_box = [](const Json& t) { return t.contains("box"); };
        const auto found = std::find_if(terms.begin(), terms.end(), is_box);
        const Json& call = found == terms.end() ? term : *found;
        const Json place = {{"from", call["span"]["from"]}, {"to", call["span"]["to"]}};
        if (below(2) == 0) return {{"kind", "unfold"}, {"at", place}};
        return {{"kind", "repeat"}, {"at", place}, {"times", word({"2", "layers", "layers/2"})}};
      }
      case 10:
        return {{"kind", "add_statement"},
                {"box", box["name"]},
                {"after", statement - 1},
                {"text", fresh() + " = " + one_of(box["formals"])["name"].get<std::string>()}};
      default:
        return {{"kind", "delete"}, {"at", {{"box", box["name"]}, {"statement", statement}}}};
    }
  }

  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<unsigned>(n)); }

 private:
  std::mt19937 random_;
  int count_ = 0;
};

bool keeps_meaning(const Json& edit) {
  const std::string kind = edit["kind"];
  return kind == "rename" || kind == "fold" || kind == "unfold";
}

TEST(RandomEdits, FiveHundredLeaveTheRestOfTheTextAlone) {
  RandomEdits random(22);
  std::map<std::string, int> made, refused;
  int total = 0, compared = 0;
  constexpr int kEdits = 500, kChain = 4;  // so many edits on one text, one after another
  const auto models = library_texts();
  for (int round = 0; total < kEdits; ++round) {
    ASSERT_LT(round, 20 * kEdits) << "hardly any edit is made";
    const LibraryText& model = models[static_cast<size_t>(round) % models.size()];
    const std::string file(model.name);
    std::string text(model.text), dropout = "dropout";
    for (int i = 0; i < kChain && total < kEdits; ++i) {
      const Json read = answer_edit({{"file", file}, {"text", text}, {"read", true}});
      const Json edit = random.edit(read["document"]);
      SCOPED_TRACE(file + " " + edit.dump());
      Json answer;
      try {
        answer = ask(text, edit, file);
      } catch (const Error& error) {
        EXPECT_FALSE(std::string(error.what()).empty());
        ++refused[edit["kind"]];
        continue;
      }
      ++total;
      ++made[edit["kind"]];
      const std::string after = answer["text"];
      expect_only_changed_there(text, answer);
      const auto was = comments_of(text), is = comments_of(after);
      EXPECT_TRUE(std::includes(is.begin(), is.end(), was.begin(), was.end()));
      if (keeps_meaning(edit)) {
        const auto before = small(text, file, dropout);
        if (edit.value("number", "") == dropout) dropout = edit["to"];
        if (before) {
          const auto now = small(after, file, dropout);
          ASSERT_TRUE(now) << after;
          EXPECT_EQ(first_difference(*before, *now), std::nullopt) << after;
          ++compared;
        }
      }
      if (edit["kind"] == "insert") {
        // What was inserted is taken out again, and the text is the one before.
        Json take = {{"kind", "delete"}, {"at", answer["made"]}};
        if (edit["call"] == "1 - _") take["operand"] = 1;
        EXPECT_EQ(edited(after, take, file), text);
      }
      text = after;
      if (::testing::Test::HasFailure()) return;
    }
  }
  for (const char* kind : {"insert", "delete", "rename", "connect", "set", "fold", "unfold",
                           "repeat", "add_statement"}) {
    EXPECT_GE(made[kind], 3) << kind << " was refused " << refused[kind] << " times";
  }
  EXPECT_GT(compared, 50);
}

// Calls of a text that are written within bytes, by name.
std::set<std::string> names_within(const Document& document, const TextLines& lines, size_t from,
                                   size_t to) {
  std::set<std::string> names;
  for (const Box& box : document.boxes) {
    for (const CallName& call : call_names(document, box)) {
      const auto range = lines.range(call.call->span);
      const auto name = call.name();
      if (range && from <= range->from && range->to <= to && name) names.insert(*name);
    }
  }
  return names;
}

// Tells if one of these calls is on the way to a parameter.
bool is_below(const std::string& path, const std::set<std::string>& names) {
  for (size_t from = 0; from <= path.size();) {
    const size_t end = std::min(path.find('.', from), path.size());
    const std::string part = path.substr(from, end - from);
    if (names.count(part.substr(0, part.find('[')))) return true;
    from = end + 1;
  }
  return false;
}

std::set<std::string> parameter_paths(const Scheme& scheme) {
  std::set<std::string> paths;
  for (const Value v : scheme.inputs) {
    if (scheme[v].role == Role::kParameter) paths.insert(scheme[v].source.path);
  }
  return paths;
}

// Formats and saves know weights by their paths, so an edit changes no path but of what it takes
// away.
TEST(RandomEdits, WeightsOfOtherCallsKeepTheirPaths) {
  RandomEdits random(33);
  int inserted = 0, deleted = 0, said = 0;
  for (const LibraryText& model : library_texts()) {
    const std::string file(model.name);
    for (int i = 0; i < 24; ++i) {
      const std::string text(model.text);
      const Document document = parse_document(text, file);
      const TextLines lines(text);
      const Box& box = random.one_of(document.boxes);
      const std::vector<CallName> calls = call_names(document, box);
      if (calls.empty()) continue;
      const Term& call = *random.one_of(calls).call;
      const TextRange range = *lines.range(call.span);
      const Json at = {{"from", range.from}, {"to", range.to}};
      const bool insert = i % 2 == 0;
      Json edit = {{"kind", insert ? "insert" : "delete"}, {"at", at}};
      if (insert) {
        edit["call"] = random.word({"rms_norm(_)", "layer_norm(_)", "linear(_, hidden)",
                                    "rms_norm(_, name=mine)", "gelu(_)"});
      }
      SCOPED_TRACE(file + " " + edit.dump());
      Json answer;
      try {
        answer = ask(text, edit, file);
      } catch (const Error&) {
        continue;
      }
      const std::string after = answer["text"];
      expect_only_changed_there(text, answer);
      const auto was = small(text, file, "dropout"), is = small(after, file, "dropout");
      if (!was || !is) continue;
      said += after.find("=\"") != after.npos;
      const auto before = parameter_paths(*was), now = parameter_paths(*is);
      std::set<std::string> gone;
      if (!insert) {
        const TextRange stays = *lines.range(call.args[0].span);
        gone = names_within(document, lines, range.from, range.to);
        for (const auto& name : names_within(document, lines, stays.from, stays.to)) {
          gone.erase(name);
        }
        for (const std::string& path : now) EXPECT_TRUE(before.count(path)) << path;
      }
      for (const std::string& path : before) {
        EXPECT_TRUE(now.count(path) || is_below(path, gone)) << path << " in\n" << after;
      }
      ++(insert ? inserted : deleted);
      if (::testing::Test::HasFailure()) return;
    }
  }
  EXPECT_GT(inserted, 50);
  EXPECT_GT(deleted, 20);
  EXPECT_GT(said, 10);
}

// An edit of a functor that somebody might ask for.
Json functor_edit(RandomEdits& random, const std::string& text, const Json& functor) {
  const auto& rules = functor["rules"];
  const int64_t count = static_cast<int64_t>(rules.size());
  std::vector<Json> terms;
  collect(rules, terms);
  std::erase_if(terms, [](const Json& t) { return t.contains("index") || t["span"].is_null(); });
  switch (random.below(5)) {
    case 0:
      if (!functor["params"].empty()) {
        return {{"kind", "set"},
                {"param", random.one_of(functor["params"])["name"]},
                {"to", random.word({"3", "2*4", "yes", "1 + 1"})}};
      }
      [[fallthrough]];
    case 1:
      if (!terms.empty()) {
        const Json& span = random.one_of(terms)["span"];
        const size_t from = span["from"], to = span["to"];
        const std::string was = text.substr(from, to - from);
        return {{"kind", "set"},
                {"at", {{"from", from}, {"to", to}}},
                {"to", random.word({was, "(" + was + ")", "7", "1 + 2", "l"})}};
      }
      [[fallthrough]];
    case 2:
      return {{"kind", "insert"},
              {"after", random.below(count + 1) - 1},
              {"text", random.word({"object activation -> bf16", "let " + random.fresh() + " = 2",
                                    "require 1 > 0, else \"never\""})}};
    case 3:
      if (count > 0) return {{"kind", "delete"}, {"rule", random.below(count)}};
      [[fallthrough]];
    default: {
      if (count == 0) return {{"kind", "insert"}, {"after", -1}, {"text", "object -> bf16"}};
      const int64_t number = random.below(count);
      return {{"kind", "set"}, {"rule", number}, {"to", rules[number]["text"]}};
    }
  }
}

TEST(RandomEdits, OfAllFunctorsLeaveTheRestOfTheTextAlone) {
  RandomEdits random(7);
  std::map<std::string, int> made;
  for (const FunctorFile& functor : functor_files()) {
    const std::string file(functor.name);
    std::string text(functor.text);
    int of_this = 0;
    for (int i = 0; i < 60 && of_this < 12; ++i) {
      const Json read = answer_edit({{"file", file}, {"text", text}, {"read", true}});
      const Json edit = functor_edit(random, text, read["functor"]);
      SCOPED_TRACE(file + " " + edit.dump());
      Json answer;
      try {
        answer = ask(text, edit, file);
      } catch (const Error& error) {
        EXPECT_FALSE(has(error.what(), "json.exception")) << error.what();
        continue;
      }
      ++of_this;
      ++made[edit["kind"]];
      const std::string after = answer["text"];
      expect_only_changed_there(text, answer);
      // A line that goes takes the comments inside it along, and no others.
      if (edit["kind"] == "insert" || edit.contains("param")) {
        EXPECT_EQ(comments_of(after), comments_of(text));
      }
      if (edit["kind"] == "set" && edit.contains("rule")) {
        EXPECT_EQ(after, text);
      }
      expect_places_are_right(after, answer["functor"], file.c_str());
      if (edit["kind"] == "insert") {
        const Json take = {{"kind", "delete"}, {"rule", edit["after"].get<int64_t>() + 1}};
        EXPECT_EQ(edited(after, take, file), text);
      }
      text = after;
      if (::testing::Test::HasFailure()) return;
    }
    EXPECT_GE(of_this, 3) << file << ": hardly any edit is made";
  }
  for (const char* kind : {"set", "insert", "delete"}) EXPECT_GE(made[kind], 10) << kind;
}

// The judge itself: what it calls the same and what not.
TEST(SameScheme, TellsModelsApart) {
  const auto scheme = [](const std::string& text) {
    return elaborate(parse_document(text, "t"), "t", {});
  };
  const std::string text =
      "axes hidden=4\nf x:\n  y = linear(dropout(x, 0.5), hidden, name=a)\n"
      "model t f32[batch, hidden]:\n  a = f(t)\n  b = tanh(a) + a\n";
  const Scheme base = scheme(text);
  EXPECT_EQ(first_difference(base, scheme(with(text, "name=a", "name=other"))), std::nullopt);
  EXPECT_EQ(
      first_difference(base, scheme(with(text, "a = f(t)", "a = linear(dropout(t, 0.5), hidden)"))),
      std::nullopt);
  for (const auto& [piece, other] :
       {std::pair("tanh(a)", "gelu(a)"), std::pair("hidden=4", "hidden=5"), std::pair("+ a", "+ t"),
        std::pair("0.5", "0.25"), std::pair("+ a", "- a"), std::pair("name=a", "bias=no"),
        std::pair("name=a", "frozen=yes"), std::pair("name=a", "init=zeros"),
        std::pair("b = tanh(a) + a", "b = tanh(a) + a\n  b = a")}) {
    EXPECT_NE(first_difference(base, scheme(with(text, piece, other))), std::nullopt) << other;
  }
}

}  // namespace
}  // namespace adjoint
