// Every kind of edit of a model's text, what it changes and what it refuses.
#include "edit/edit.h"

#include "base/file.h"
#include "base/temp_folder.h"
#include "edit/edited.h"
#include "models/library.h"

namespace adjoint {
namespace {

using Json = nlohmann::json;

const std::string kText = R"(# A model with comments in odd places.
axes layers=2   hidden=8 heads=2 context=4 vocab=11   # sizes
numbers eps=1e-5 rate=0

preset small: layers=1 hidden=4    # tiny
preset plain:      # as it is

# What a block does.
block x[batch, seq, hidden]:
  n = rms_norm(x, eps)    # before

  # Attention comes first.
  a = attention(linear(n, 3*hidden, name=qkv), heads, causal)
  x = x + linear(a, hidden, name=proj)   
  n = rms_norm(x, eps)
  x = x + (linear(gelu(n), hidden, name=down) +
           dropout(n, rate))*2  # two halves

model tokens[batch, seq], targets[batch, seq]:
  x = block^layers(embed(tokens, vocab, name=wte))
  x = block(x, name=last)
  logits = linear(rms_norm(x, eps), vocab, weight=wte, bias=no)
  loss = cross_entropy(logits, targets)
)";

std::string library_text(std::string_view name) {
  for (const LibraryText& model : library_texts()) {
    if (model.name.starts_with(name)) return std::string(model.text);
  }
  return "";
}

TEST(Edit, WithoutAnEditTheTextStays) {
  const Json answer = answer_edit({{"file", "my.scheme"}, {"text", kText}});
  EXPECT_EQ(answer["text"], kText);
  EXPECT_TRUE(answer["changes"].empty());
}

TEST(Edit, InsertsACallOnAnArrow) {
  EXPECT_EQ(
      edited(kText, {{"kind", "insert"},
                     {"at", at(kText, "linear(n, 3*hidden, name=qkv)")},
                     {"call", "dropout(_, 0.1)"}}),
      with(kText, "linear(n, 3*hidden, name=qkv)", "dropout(linear(n, 3*hidden, name=qkv), 0.1)"));
  // By box, statement and path; blanks and a comment of the call are not taken over.
  EXPECT_EQ(edited(kText, {{"kind", "insert"},
                           {"at", {{"box", "block"}, {"statement", 1}, {"path", {0, 0, 0}}}},
                           {"call", "  tanh(_)  # new"}}),
            with(kText, "linear(n, 3*hidden", "linear(tanh(n), 3*hidden"));
}

TEST(Edit, BracketsFollowTheGrammar) {
  const std::string text = "model x:\n  y = (x + 1)*2 - x\n";
  const auto wrapped = [&](const std::string& piece, const std::string& call) {
    return edited(text, {{"kind", "insert"}, {"at", at(text, piece)}, {"call", call}});
  };
  EXPECT_EQ(wrapped("x + 1", "gelu(_)"), "model x:\n  y = gelu(x + 1)*2 - x\n");
  EXPECT_EQ(wrapped("(x + 1)", "gelu(_)"), "model x:\n  y = gelu(x + 1)*2 - x\n");
  EXPECT_EQ(wrapped("x + 1", "_*3"), "model x:\n  y = (x + 1)*3*2 - x\n");
  EXPECT_EQ(wrapped("x + 1", "3 + _"), "model x:\n  y = (3 + (x + 1))*2 - x\n");
  EXPECT_EQ(wrapped("(x + 1)*2", "-_"), "model x:\n  y = -((x + 1)*2) - x\n");
}

TEST(Edit, InsertThenDeleteIsNothing) {
  for (const std::string piece :
       {"linear(n, 3*hidden, name=qkv)", "x + linear(a, hidden, name=proj)",
        "linear(gelu(n), hidden, name=down) +\n           dropout(n, rate)"}) {
    const Json inserted =
        ask(kText, {{"kind", "insert"}, {"at", at(kText, piece)}, {"call", "dropout(_, 0.25)"}});
    const std::string there = inserted["text"];
    const std::string call = "dropout(" + piece + ", 0.25)";
    EXPECT_EQ(edited(there, {{"kind", "delete"}, {"at", at(there, call)}}), kText) << piece;
  }
}

TEST(Edit, DeletesACall) {
  EXPECT_EQ(edited(kText, {{"kind", "delete"}, {"at", at(kText, "gelu(n)")}}),
            with(kText, "gelu(n)", "n"));
  EXPECT_EQ(edited(kText, {{"kind", "delete"},
                           {"at", at(kText, "x + linear(a, hidden, name=proj)")},
                           {"operand", 1}}),
            with(kText, "x + linear(a, hidden, name=proj)", "linear(a, hidden, name=proj)"));
  EXPECT_EQ(refusal(kText, {{"kind", "delete"}, {"at", at(kText, "gelu(n)")}, {"operand", 3}}),
            "'gelu(n)' has operands 0 to 0, found 3");
}

// GPT-2's format calls the second layer norm of a block ln_2 by the name layer_norm#2.
TEST(Edit, NamesOfWeightsSurviveWhatComesAndGoes) {
  const std::string gpt2(library_text("gpt2"));
  const std::string first = "linear(layer_norm(x, eps=eps), 3*hidden, name=qkv)";
  const std::string second = "linear(layer_norm(x, eps=eps), ffn, name=up)";
  const Json deleted = ask(
      gpt2, {{"kind", "delete"}, {"at", {{"box", "block"}, {"statement", 0}, {"path", {0, 0}}}}});
  EXPECT_EQ(deleted["text"],
            with(with(gpt2, first, "linear(x, 3*hidden, name=qkv)"), second,
                 "linear(layer_norm(x, eps=eps, name=\"layer_norm#2\"), ffn, name=up)"));
  EXPECT_EQ(deleted["breaks"],
            Json::array({"module \"block[{l}].layer_norm#1\" of format huggingface names nothing "
                         "any more, so convert would refuse this model"}));
  // Calls behind an inserted one keep their numbers, and the new one has the next.
  const Json inserted = ask(gpt2, {{"kind", "insert"},
                                   {"at", {{"box", "block"}, {"statement", 0}, {"path", {0, 0}}}},
                                   {"call", "layer_norm(_)"}});
  EXPECT_EQ(inserted["text"],
            with(gpt2, first,
                 "linear(layer_norm(layer_norm(x, eps=eps), name=\"layer_norm#3\"), 3*hidden, "
                 "name=qkv)"));
  EXPECT_EQ(inserted["breaks"],
            Json::array({"no module of format huggingface names 'block[0].layer_norm#3.weight' and "
                         "23 more, so convert would refuse this model"}));
  // A call without weights is no name that anybody knows.
  const Json plain = ask(gpt2, {{"kind", "insert"},
                                {"at", {{"box", "block"}, {"statement", 0}, {"path", {0, 0}}}},
                                {"call", "gelu(_)"}});
  EXPECT_EQ(plain["text"].get<std::string>().find('"' + std::string("gelu#")), std::string::npos);
  EXPECT_FALSE(plain.contains("breaks"));
}

TEST(Edit, NumbersThatCallsSayFollowTheirBox) {
  const std::string text = R"(axes hidden=8 vocab=11
norm x:
  y = rms_norm(x, name="rms_norm#2")
model tokens[batch, seq], targets[batch, seq]:
  x = embed(tokens, vocab)
  x = norm(norm(x, name="norm#3"))
  logits = linear(x, vocab, name=readout)
  loss = cross_entropy(logits, targets)
)";
  EXPECT_EQ(edited(text, {{"kind", "rename"}, {"box", "norm"}, {"to", "scaled"}}),
            with(with(text, "norm x:", "scaled x:"), "norm(norm(x, name=\"norm#3\"))",
                 "scaled(scaled(x, name=\"scaled#3\"))"));
  // In another box it is another number.
  EXPECT_EQ(
      edited(text, {{"kind", "unfold"}, {"at", at(text, "norm(x, name=\"norm#3\")")}}),
      with(text, "  x = norm(norm(x, name=\"norm#3\"))\n", "  y = rms_norm(x)\n  x = norm(y)\n"));
}

TEST(Edit, DeletesAStatement) {
  // Its one operand stands for it below; the comment behind it stays, and the other norm's name.
  EXPECT_EQ(edited(kText, {{"kind", "delete"}, {"at", {{"box", "block"}, {"statement", 0}}}}),
            with(with(with(kText, "n = rms_norm(x, eps)    # before", "# before"),
                      "attention(linear(n, 3", "attention(linear(x, 3"),
                 "n = rms_norm(x, eps)\n", "n = rms_norm(x, eps, name=\"rms_norm#2\")\n"));
  // What it rebinds is again what it was.
  EXPECT_EQ(edited(kText, {{"kind", "delete"}, {"at", {{"box", "block"}, {"statement", 2}}}}),
            with(kText, "  x = x + linear(a, hidden, name=proj)   \n", ""));
  EXPECT_EQ(edited(kText, {{"kind", "delete"}, {"at", {{"box", "model"}, {"statement", 1}}}}),
            with(kText, "  x = block(x, name=last)\n", ""));
  EXPECT_EQ(refusal(kText, {{"kind", "delete"}, {"at", {{"box", "block"}, {"statement", 1}}}}),
            "'a' is read below, and nothing that 'attention(linear(n, 3*hidden, name=qkv), heads, "
            "causal)' reads could stand for it");
  EXPECT_EQ(refusal(kText, {{"kind", "delete"}, {"at", {{"box", "block"}, {"statement", 4}}}}),
            "what the last statement of 'block' names is what the box gives; delete the call in it "
            "instead");
  // What the statement before names is the operand, or it would give something else.
  const auto last = [](const std::string& body, const Json& operand) {
    const auto lines = std::count(body.begin(), body.end(), '\n');
    const Json place = {{"box", "f"}, {"statement", lines - 1}};
    return std::pair("f t:\n" + body + "model t:\n  y = f(t)\n",
                     Json{{"kind", "delete"}, {"at", place}, {"operand", operand}});
  };
  const std::string gives =
      "what the last statement of 'f' names is what the box gives; delete the call in it instead";
  for (const auto& [body, operand] :
       {std::pair("  x = tanh(t)\n  y = gelu(x)\n  y = add2(y, x)\n", 1),
        std::pair("  x = tanh(t)\n  y = gelu(x)\n  y = mix(x) + y*on\n", 0),
        std::pair("  a, b = g(t)\n  a, b = g(b, a)\n", 0)}) {
    const auto [text, edit] = last(body, operand);
    EXPECT_EQ(refusal(text, edit), gives) << body;
  }
  for (const std::string body :
       {"  x = tanh(t)\n  y = gelu(x)\n  y = add2(y, x)\n", "  y = gelu(t)\n  z = add2(y, t)\n",
        "  a, b = g(t)\n  a, b = g(a, b)\n"}) {
    const auto [text, edit] = last(body, 0);
    const std::string line = body.substr(body.rfind('\n', body.size() - 2) + 1);
    EXPECT_EQ(edited(text, edit), with(text, line, "")) << body;
  }
  const std::string moved = "model x:\n  y = tanh(x)\n  x = x + 1\n  z = y + x\n";
  EXPECT_EQ(refusal(moved, {{"kind", "delete"}, {"at", {{"box", "model"}, {"statement", 0}}}}),
            "'x' is bound again before 'y' is read, so it cannot stand for it");
}

TEST(Edit, RenamesOneVersionOfAValue) {
  const auto renamed = [&](int statement, const std::string& name, const std::string& to) {
    return edited(kText, {{"kind", "rename"},
                          {"box", "block"},
                          {"statement", statement},
                          {"name", name},
                          {"to", to}});
  };
  EXPECT_EQ(renamed(0, "n", "normed"), with(with(kText, "n = rms_norm(x, eps)    # before",
                                                 "normed = rms_norm(x, eps)    "
                                                 "# before"),
                                            "linear(n, 3*hidden", "linear(normed, 3*hidden"));
  EXPECT_EQ(renamed(3, "n", "m"),
            with(with(with(kText, "\n  n = rms_norm(x, eps)\n", "\n  m = rms_norm(x, eps)\n"),
                      "gelu(n)", "gelu(m)"),
                 "dropout(n, rate)", "dropout(m, rate)"));
  // The formal: its reads, and not those of what is called like it later.
  EXPECT_EQ(renamed(-1, "x", "h"),
            with(with(with(kText, "block x[", "block h["), "n = rms_norm(x, eps)    #",
                      "n = rms_norm(h, eps)    #"),
                 "x = x + linear(a", "x = h + linear(a"));
  // By a place where it is read.
  EXPECT_EQ(
      edited(kText, {{"kind", "rename"},
                     {"at", {{"from", kText.find("n, rate)")}, {"to", kText.find("n, rate)") + 1}}},
                     {"to", "m"}}),
      renamed(3, "n", "m"));
  const auto refused = [&](const std::string& to) {
    return refusal(
        kText, {{"kind", "rename"}, {"box", "block"}, {"statement", 0}, {"name", "n"}, {"to", to}});
  };
  EXPECT_EQ(refused("a"), "'a' is already the name of something in 'block'");
  EXPECT_EQ(refused("hidden"), "'hidden' is already the name of something in 'block'");
  EXPECT_EQ(refused("causal"), "'causal' is already the name of something in 'block'");
  EXPECT_EQ(refused("when"), "'when' is a word of the notation and no name");
  EXPECT_EQ(refused("3d"), "the edit's 'to' must be a name, found '3d'");
}

TEST(Edit, NamesOfCallsAreNoValues) {
  const std::string text =
      "axes hidden=4 vocab=5\nmodel t[batch, vocab]:\n  q = embed(t, vocab, name=q)\n"
      "  q = linear(q, hidden, name=k)\n";
  EXPECT_EQ(
      edited(text,
             {{"kind", "rename"}, {"box", "model"}, {"statement", 0}, {"name", "q"}, {"to", "e"}}),
      "axes hidden=4 vocab=5\nmodel t[batch, vocab]:\n  e = embed(t, vocab, name=q)\n"
      "  q = linear(e, hidden, name=k)\n");
}

TEST(Edit, RenamesAnAxisEverywhere) {
  const std::string text =
      "axes width=4 vocab=5 context=3  # width of all\nnumbers share=width/2\npreset p: width=8\n"
      "f x[batch, seq, width]:\n  y = sum(linear(x, width, name=width), width, keep)\n"
      "model t[batch, seq], targets[batch, seq]:\n  x = f(embed(t, vocab, width))\n"
      "  loss = cross_entropy(linear(x, vocab), targets)\n"
      "format huggingface \"A\":\n  field n = width else 3*width\n  module \"a\" = \"b\"\n"
      "  set width=2\n";
  EXPECT_EQ(edited(text, {{"kind", "rename"}, {"axis", "width"}, {"to", "d"}}),
            "axes d=4 vocab=5 context=3  # width of all\nnumbers share=d/2\npreset p: d=8\n"
            "f x[batch, seq, d]:\n  y = sum(linear(x, d, name=width), d, keep)\n"
            "model t[batch, seq], targets[batch, seq]:\n  x = f(embed(t, vocab, d))\n"
            "  loss = cross_entropy(linear(x, vocab), targets)\n"
            "format huggingface \"A\":\n  field n = d else 3*d\n  module \"a\" = \"b\"\n"
            "  set d=2\n");
  EXPECT_NE(refusal(text, {{"kind", "rename"}, {"axis", "vocab"}, {"to", "words"}}), "");
  EXPECT_EQ(refusal(text, {{"kind", "rename"}, {"axis", "context"}, {"to", "d"}}),
            "'context' is known by its name: it is how long a sequence is where nobody says 'seq'");
  EXPECT_EQ(refusal(text, {{"kind", "rename"}, {"axis", "width"}, {"to", "x"}}),
            "'x' is already the name of something in 'f'");
}

// embed is as wide as `hidden` unless it is told.
TEST(Edit, ARenamedAxisIsSaidWhereADefaultNamedIt) {
  const std::string renamed = edited(kText, {{"kind", "rename"}, {"axis", "hidden"}, {"to", "d"}});
  EXPECT_TRUE(has(renamed, "embed(tokens, vocab, name=wte, width=d)")) << renamed;
  EXPECT_TRUE(has(renamed, "axes layers=2   d=8 heads=2")) << renamed;
  EXPECT_FALSE(has(renamed, "hidden")) << renamed;
}

TEST(Edit, RenamesABox) {
  const std::string format =
      kText +
      "\nformat huggingface \"A\":\n  module \"block[{l}].qkv\" = \"blocks.{l}.block\"\n"
      "  module \"block#2.proj\" = \"p\"\n";
  const std::string renamed = edited(format, {{"kind", "rename"}, {"box", "block"}, {"to", "b"}});
  EXPECT_TRUE(has(renamed, "# What a block does.\nb x[batch, seq, hidden]:")) << renamed;
  EXPECT_TRUE(has(renamed, "b^layers(embed(")) << renamed;
  EXPECT_TRUE(has(renamed, "x = b(x, name=last)")) << renamed;
  EXPECT_TRUE(has(renamed, "module \"b[{l}].qkv\" = \"blocks.{l}.block\"")) << renamed;
  EXPECT_TRUE(has(renamed, "module \"b#2.proj\" = \"p\"")) << renamed;
  EXPECT_EQ(refusal(kText, {{"kind", "rename"}, {"box", "model"}, {"to", "b"}}),
            "the box 'model' is found by its name");
  EXPECT_EQ(refusal(kText, {{"kind", "rename"}, {"box", "block"}, {"to", "linear"}}),
            "'linear' is an op, so a box of that name would hide it");
  EXPECT_EQ(refusal(kText, {{"kind", "rename"}, {"box", "blok"}, {"to", "b"}}),
            "there is no box 'blok'; did you mean 'block'?");
}

TEST(Edit, ConnectsAnotherValue) {
  const Json place = {{"box", "block"}, {"statement", 4}, {"path", {0, 1, 0, 0, 0, 0}}};
  EXPECT_EQ(edited(kText, {{"kind", "connect"}, {"at", place}, {"value", "a"}}),
            with(kText, "gelu(n)", "gelu(a)"));
  EXPECT_EQ(refusal(kText, {{"kind", "connect"},
                            {"at", {{"box", "block"}, {"statement", 0}, {"path", {0, 0}}}},
                            {"value", "a"}}),
            "there is no value 'a' before statement 0 of 'block'");
  EXPECT_EQ(refusal(kText, {{"kind", "connect"}, {"at", place}, {"value", "x"}, {"formal", 0}}),
            "'x' is bound again by statement 2 of 'block', so the earlier one cannot be read here");
  EXPECT_EQ(edited(kText, {{"kind", "connect"}, {"at", place}, {"value", "x"}, {"statement", 2}}),
            with(kText, "gelu(n)", "gelu(x)"));
}

TEST(Edit, SetsNumbers) {
  EXPECT_EQ(edited(kText, {{"kind", "set"}, {"axis", "hidden"}, {"to", "4*heads"}}),
            with(kText, "hidden=8", "hidden=4*heads"));
  EXPECT_EQ(edited(kText, {{"kind", "set"}, {"axis", "hidden"}, {"to", "heads + 2"}}),
            with(kText, "hidden=8", "hidden=(heads + 2)"));
  EXPECT_EQ(edited(kText, {{"kind", "set"}, {"number", "eps"}, {"to", "1e-6"}}),
            with(kText, "eps=1e-5", "eps=1e-6"));
  EXPECT_EQ(edited(kText, {{"kind", "set"}, {"axis", "layers"}, {"to", 3}}),
            with(kText, "layers=2", "layers=3"));
  const auto preset = [&](const char* name, const char* setting) {
    return edited(kText, {{"kind", "set"}, {"preset", name}, {"setting", setting}, {"to", "16"}});
  };
  EXPECT_EQ(preset("small", "hidden"), with(kText, "hidden=4 ", "hidden=16 "));
  EXPECT_EQ(preset("small", "heads"), with(kText, "hidden=4    #", "hidden=4 heads=16    #"));
  EXPECT_EQ(preset("plain", "heads"), with(kText, "plain:      #", "plain: heads=16      #"));
  EXPECT_EQ(preset("plain", "head"), "refused: there is no axis or number 'head'");
  const Json call = at(kText, "linear(a, hidden, name=proj)");
  const auto keyword = [&](const char* name, const char* to) {
    return edited(kText, {{"kind", "set"}, {"at", call}, {"keyword", name}, {"to", to}});
  };
  EXPECT_EQ(keyword("bias", "no"), with(kText, "name=proj)", "name=proj, bias=no)"));
  EXPECT_EQ(keyword("name", "out"), with(kText, "name=proj)", "name=out)"));
  EXPECT_EQ(edited(kText, {{"kind", "set"}, {"at", at(kText, "3*hidden")}, {"to", "4*hidden"}}),
            with(kText, "3*hidden", "4*hidden"));
  EXPECT_EQ(refusal(kText, {{"kind", "set"}, {"axis", "hiden"}, {"to", "3"}}),
            "there is no axis 'hiden'; did you mean 'hidden'?");
  EXPECT_EQ(refusal(kText, {{"kind", "set"}, {"axis", "hidden"}, {"to", "3 +"}}),
            "the edit's 'to':1:4: wanted a name, a number or '(', found the end of the text");
}

TEST(Edit, RepeatsABox) {
  const auto repeated = [&](const std::string& call, const Json& times) {
    return edited(kText, {{"kind", "repeat"}, {"at", at(kText, call)}, {"times", times}});
  };
  EXPECT_EQ(repeated("block(x, name=last)", "layers"),
            with(kText, "block(x, name=last)", "block^layers(x, name=last)"));
  const std::string chain = "block^layers(embed(tokens, vocab, name=wte))";
  EXPECT_EQ(repeated(chain, "layers - 1"),
            with(kText, chain, "block^(layers - 1)(embed(tokens, vocab, name=wte))"));
  EXPECT_EQ(repeated(chain, nullptr), with(kText, "block^layers(", "block("));
  EXPECT_EQ(repeated("gelu(n)", "2"),
            "refused: only the call of a box can be repeated, found 'gelu(n)'");
}

TEST(Edit, FoldsStatementsIntoABox) {
  const Json fold = {{"kind", "fold"},
                     {"box", "block"},
                     {"statements", {0, 2}},
                     {"name", "attend"},
                     {"axes", {{"x", {"batch", "seq", "hidden"}}}}};
  EXPECT_EQ(edited(kText, fold), with(with(kText, R"(  n = rms_norm(x, eps)    # before

  # Attention comes first.
  a = attention(linear(n, 3*hidden, name=qkv), heads, causal)
  x = x + linear(a, hidden, name=proj)   
)",
                                           "  x = attend(x)\n"),
                                      "# What a block does.\n", R"(attend x[batch, seq, hidden]:
  n = rms_norm(x, eps)    # before

  # Attention comes first.
  a = attention(linear(n, 3*hidden, name=qkv), heads, causal)
  x = x + linear(a, hidden, name=proj)   

# What a block does.
)"));
  Json silent = fold;
  silent.erase("axes");
  EXPECT_EQ(refusal(kText, silent), "") << "a box takes any shape where nobody says one";
  Json hides = fold;
  hides["name"] = "gelu";
  EXPECT_EQ(refusal(kText, hides), "'gelu' is an op, so a box of that name would hide it");
}

TEST(Edit, FoldsWhatGivesSeveralValues) {
  const std::string text =
      "axes hidden=4\nmodel t f32[batch, hidden]:\n  a = tanh(t)\n  b = gelu(a)\n  c = relu(b)\n"
      "  d = a + b + c\n";
  EXPECT_EQ(edited(text, {{"kind", "fold"},
                          {"box", "model"},
                          {"statements", {0, 2}},
                          {"name", "three"},
                          {"axes", {{"t", nullptr}}}}),
            "axes hidden=4\nthree t:\n  a = tanh(t)\n  b = gelu(a)\n  c = relu(b)\n"
            "  a, b, c = a, b, c\n\nmodel t f32[batch, hidden]:\n  a, b, c = three(t)\n"
            "  d = a + b + c\n");
}

TEST(Edit, FoldsATerm) {
  EXPECT_EQ(
      edited(kText, {{"kind", "fold"},
                     {"at", at(kText, "linear(gelu(n), hidden, name=down)")},
                     {"name", "feed"},
                     {"axes", {{"n", "batch, seq, hidden"}}}}),
      with(with(kText, "linear(gelu(n), hidden, name=down)", "feed(n)"), "# What a block does.\n",
           "feed n[batch, seq, hidden]:\n  y = linear(gelu(n), hidden, name=down)\n\n"
           "# What a block does.\n"));
}

// The readout has the table's weight, which it would not find inside a box.
TEST(Edit, AFoldThatWouldBreakTheModelIsRefused) {
  const std::string said = refusal(kText, {{"kind", "fold"},
                                           {"at", at(kText, "embed(tokens, vocab, name=wte)")},
                                           {"name", "begin"},
                                           {"axes", {{"tokens", {"batch", "seq"}}}}});
  EXPECT_TRUE(has(said, "this edit would break the model: ")) << said;
  EXPECT_TRUE(has(said, "there is no object 'wte' here")) << said;
}

TEST(Edit, UnfoldsACall) {
  const std::string text = R"(axes hidden=4
# Twice.
f x[batch, hidden], y:
  # first
  n = tanh(x)  # n
  x = x + n
  x = x*y
model t f32[batch, hidden]:
  n = gelu(t)
  t = f(n, relu(t))  # here
  z = n + t
)";
  EXPECT_EQ(edited(text, {{"kind", "unfold"}, {"at", at(text, "f(n, relu(t))")}}),
            with(text, "t = f(n, relu(t))", R"(y = relu(t)
  # first
  n_2 = tanh(n)  # n
  x = n + n_2
  t = x*y)"));
  const std::string nested = with(text, "t = f(n, relu(t))", "t = 2*f(n, t)");
  EXPECT_EQ(edited(nested, {{"kind", "unfold"}, {"at", at(nested, "f(n, t)")}}),
            with(nested, "  t = 2*f(n, t)", R"(  # first
  n_2 = tanh(n)  # n
  x = n + n_2
  x_2 = x*t
  t = 2*x_2)"));
  EXPECT_TRUE(
      has(refusal(kText, {{"kind", "unfold"}, {"at", {{"box", "model"}, {"statement", 0}}}}),
          "is repeated, so it cannot be unfolded"));
}

// A box's lines get the indent of the place where they are unfolded, however the two are written.
TEST(Edit, UnfoldedLinesHaveTheCallersIndent) {
  const auto unfolded = [](const std::string& text) {
    return edited(text, {{"kind", "unfold"}, {"at", at(text, "f(t)")}});
  };
  const std::string axes = "axes hidden=4\n", model = "model t f32[batch, hidden]:\n";
  EXPECT_EQ(unfolded(axes + "f x:\n y=tanh(x)\n" + model + "        z = f(t)\n"),
            axes + "f x:\n y=tanh(x)\n" + model + "        z=tanh(t)\n");
  const std::string box =
      "f x:\n  # first\n  n = tanh(x)\n# at the margin\n\n  y = (n +\n       x)  # of both\n";
  EXPECT_EQ(
      unfolded(axes + box + model + "    z = f(t)  # here\n"),
      axes + box + model +
          "    # first\n    n = tanh(t)\n    # at the margin\n\n    z = (n +\n         t)  # of "
          "both  # here\n");
  const std::string deep = "f x:\n\n      # first\n      y = tanh(x)\n";
  EXPECT_EQ(unfolded(axes + deep + model + " z = f(t)*2\n"),
            axes + deep + model + "\n # first\n y = tanh(t)\n z = y*2\n");
  EXPECT_EQ(unfolded(axes + deep + model + " z = f(t)\n"),
            axes + deep + model + "\n # first\n z = tanh(t)\n");
  EXPECT_EQ(unfolded(axes + "f x:\n\ty = tanh(x)\n" + model + "  z = f(t)\n"),
            axes + "f x:\n\ty = tanh(x)\n" + model + "  z = tanh(t)\n");
}

const std::string kChoice = R"(axes hidden=4
numbers wide=1
preset thin: wide=0
preset other: hidden=8
mlp x:
  y = linear(tanh(x), hidden, name=up)
model x f32[batch, hidden]:
  y = mlp(x) when wide else x
)";

TEST(Edit, WhatIsNotAlwaysComputedIsNotUnfolded) {
  EXPECT_EQ(refusal(kChoice, {{"kind", "unfold"}, {"at", at(kChoice, "mlp(x)")}}),
            "'mlp(x)' is called only where a condition says so, and its statements would always "
            "run");
  const std::string inner = with(kChoice, "mlp(x) when", "2*tanh(mlp(x)) when");
  EXPECT_TRUE(has(refusal(inner, {{"kind", "unfold"}, {"at", at(inner, "mlp(x)")}}),
                  "only where a condition says so"));
  // A box of what is chosen is chosen too.
  EXPECT_TRUE(has(edited(kChoice, {{"kind", "fold"}, {"at", at(kChoice, "mlp(x)")}, {"name", "m"}}),
                  "y = m(x) when wide else x"));
}

TEST(Edit, TheMeaningIsComparedUnderEveryPreset) {
  const std::string tied =
      "axes hidden=4 vocab=5 context=3\nnumbers tied=0\npreset shared: tied=1\n"
      "model t[batch, seq]:\n  e = embed(t, vocab, name=wte)\n"
      "  y = linear(e, vocab, bias=no, weight=wte when tied)\n";
  EXPECT_TRUE(has(
      refusal(tied,
              {{"kind", "fold"}, {"at", at(tied, "embed(t, vocab, name=wte)")}, {"name", "begin"}}),
      "this edit would break the model under preset 'shared': "));
}

// What only a late repetition does is compared, too. (`weights=ff` speaks of the call ff(n) before
// the first of them and of the parameters of ff(x) in the others.)
TEST(Edit, TheMeaningIsComparedInEveryRepetition) {
  const std::string text =
      "axes layers=8 hidden=4 context=8 vocab=13\n"
      "ff x:\n  x = x + tanh(linear(x, hidden, name=up))\n"
      "twice x, n:\n  a = ff(x)\n  b = ff(n, weights=ff)\n  y = a + b\n"
      "late x[batch, seq, hidden]:\n  x = ff(x, name=ff)\n  x = twice(x, x)\n"
      "block x[batch, seq, hidden]:\n  x = late(x) when l >= 5 else ff(x)\n"
      "model tokens[batch, seq], targets[batch, seq]:\n"
      "  x = block^layers(embed(tokens, vocab, name=wte))\n"
      "  loss = cross_entropy(linear(x, vocab), targets)\n";
  const std::string wanted = "this edit would change what the model computes";
  const std::string renamed = refusal(text, {{"kind", "rename"}, {"box", "ff"}, {"to", "mlp"}});
  EXPECT_NE(renamed.find(wanted), renamed.npos) << renamed;
  const std::string unfolded = refusal(text, {{"kind", "unfold"}, {"at", at(text, "twice(x, x)")}});
  EXPECT_NE(unfolded.find(wanted), unfolded.npos) << unfolded;
}

// Under other names they would be fed with other data.
TEST(Edit, InputsOfTheModelKeepTheirNames) {
  const std::string text =
      "axes hidden=4 vocab=13\n"
      "model tokens[batch, seq], targets[batch, seq]:\n"
      "  loss = cross_entropy(linear(embed(tokens, vocab), vocab), targets)\n";
  EXPECT_EQ(refusal(text, {{"kind", "rename"}, {"box", "model"}, {"name", "targets"}, {"to", "t"}}),
            "'targets' is an input of the model, and data are found by its name");
}

TEST(Edit, SaysWhereTheMeaningWasNotCompared) {
  const std::string broken = with(kChoice, "preset other: hidden=8", "preset other: hidden=0");
  const Json answer = ask(broken, {{"kind", "rename"}, {"box", "mlp"}, {"to", "feed"}});
  ASSERT_EQ(answer["notes"].size(), 1u) << answer;
  EXPECT_TRUE(has(answer["notes"][0].get<std::string>(),
                  "not compared under preset 'other': the text before gives no model: "))
      << answer;
  EXPECT_FALSE(
      ask(kChoice, {{"kind", "rename"}, {"box", "mlp"}, {"to", "feed"}}).contains("notes"));
  const std::string wrong = "f t:\n  y = nothing(t)\nmodel x f32[batch]:\n  y = f(x)\n";
  EXPECT_TRUE(has(ask(wrong, {{"kind", "rename"}, {"box", "f"}, {"name", "t"}, {"to", "z"}}).dump(),
                  "not compared: the text before gives no model"));
}

// A format names weights by their paths, which are others then.
TEST(Edit, ModulesOfFormatsFollowFoldsAndUnfolds) {
  const ModelText gpt2 = find_model("gpt2");
  const std::string text = gpt2.written;
  const Json fold = {
      {"kind", "fold"}, {"box", "block"}, {"statements", {0, 2}}, {"name", "attend"}};
  const std::string folded = edited(text, fold);
  for (const char* line :
       {R"(module "block[{l}].attend.layer_norm#1" = "[transformer.]h.{l}.ln_1")",
        R"(module "block[{l}].attend.qkv" = "[transformer.]h.{l}.attn.c_attn" transposed)",
        R"(module "block[{l}].attend.proj" = "[transformer.]h.{l}.attn.c_proj" transposed)",
        R"(module "block[{l}].layer_norm#1" = "[transformer.]h.{l}.ln_2")",
        R"(module "block[{l}].up" = "[transformer.]h.{l}.mlp.c_fc" transposed)"}) {
    EXPECT_TRUE(has(folded, line)) << line << folded;
  }
  const std::string unfolded =
      edited(folded, {{"kind", "unfold"}, {"at", at(folded, "attend(x)")}});
  for (const char* line :
       {R"(module "block[{l}].layer_norm#1" = "[transformer.]h.{l}.ln_1")",
        R"(module "block[{l}].qkv" = "[transformer.]h.{l}.attn.c_attn" transposed)",
        R"(module "block[{l}].layer_norm#2" = "[transformer.]h.{l}.ln_2")"}) {
    EXPECT_TRUE(has(unfolded, line)) << line << unfolded;
  }
  const std::string renamed =
      edited(folded, {{"kind", "rename"}, {"box", "attend"}, {"to", "look"}});
  EXPECT_TRUE(has(renamed, R"(module "block[{l}].look.qkv" = )")) << renamed;
}

TEST(Edit, ModulesOfFormatsFollowAParameterThatIsCalledOtherwise) {
  const std::string text =
      "axes hidden=4 layers=2\nscaled x[batch, hidden]:\n  gain = param(hidden, init=ones)\n"
      "  x = x*gain\nmodel x f32[batch, hidden]:\n  x = scaled^layers(x)\n"
      "format huggingface \"A\":\n  field n = hidden\n"
      "  module \"scaled[{l}].gain\" = \"h.{l}.g\"  # its only weight\n";
  EXPECT_EQ(
      edited(
          text,
          {{"kind", "rename"}, {"box", "scaled"}, {"statement", 0}, {"name", "gain"}, {"to", "g"}}),
      with(with(with(text, "  gain = param", "  g = param"), "x*gain", "x*g"), "scaled[{l}].gain",
           "scaled[{l}].g"));
  const std::string both =
      "axes hidden=4 layers=2\none x[batch, hidden]:\n  x = linear(x, hidden, name=a)\n"
      "model x f32[batch, hidden]:\n  x = one(x, name=f)\n  x = linear(x, hidden, name=g)\n"
      "format huggingface \"A\":\n  field n = hidden\n  module \"f.a\" = \"a\"\n"
      "  module \"g\" = \"b\"\n";
  const std::string flat = edited(both, {{"kind", "unfold"}, {"at", at(both, "one(x, name=f)")}});
  EXPECT_TRUE(has(flat, "module \"a\" = \"a\"\n  module \"g\" = \"b\"\n")) << flat;
  // One module that would have to have two names.
  const std::string norm =
      "axes hidden=4\nf x[batch, hidden]:\n  gain = param(hidden, init=ones)\n  y = x*gain\n"
      "  bias = param(hidden)\n  y = y + bias\nmodel x f32[batch, hidden]:\n  y = f(x)\n"
      "format huggingface \"A\":\n  field n = hidden\n  module \"f\" = \"norm\"\n";
  EXPECT_EQ(
      refusal(norm, {{"kind", "fold"}, {"box", "f"}, {"statements", {0, 1}}, {"name", "half"}}),
      "after this edit module \"f\" of format huggingface could no longer name 'f.bias'");
}

TEST(Edit, AddsABoxAndAStatement) {
  EXPECT_EQ(edited(kText, {{"kind", "add_box"},
                           {"name", "twice"},
                           {"formals", {"x[batch, seq, hidden]"}},
                           {"statements", {"x = x + x"}},
                           {"before", "block"}}),
            with(kText, "# What a block does.\n",
                 "twice x[batch, seq, hidden]:\n  x = x + x\n\n# What a block does.\n"));
  const auto added = [&](int after, const char* text) {
    return edited(kText,
                  {{"kind", "add_statement"}, {"box", "block"}, {"after", after}, {"text", text}});
  };
  EXPECT_EQ(added(0, "n = tanh(n)"), with(kText, "# before\n", "# before\n  n = tanh(n)\n"));
  EXPECT_EQ(added(-1, "x = tanh(x)"), with(kText, "  n = rms_norm(x, eps)    #",
                                           "  x = tanh(x)\n  n = rms_norm(x, eps)    #"));
  EXPECT_EQ(added(4, "x = tanh(x)"),
            with(kText, "# two halves\n", "# two halves\n  x = tanh(x)\n"));
  EXPECT_EQ(added(0, "n = tanh(n)\n  m = n"),
            "refused: wanted one statement, found 'n = tanh(n)\n  m = n'");
  EXPECT_EQ(added(0, "n ="),
            "refused: the new statement:2:6: wanted a name, a number or '(', found the end of the "
            "line");
}

TEST(Edit, LineEndsOfWindowsAndAMissingLastOneStay) {
  std::string text =
      "axes hidden=4\r\nmodel t f32[batch, hidden]:\r\n  a = tanh(t)  # a\r\n"
      "  b = gelu(a)";
  EXPECT_EQ(
      edited(text, {{"kind", "add_statement"}, {"box", "model"}, {"after", 1}, {"text", "c = b"}}),
      text + "\r\n  c = b");
  EXPECT_EQ(edited(text, {{"kind", "set"}, {"axis", "hidden"}, {"to", "8"}}),
            with(text, "hidden=4", "hidden=8"));
  EXPECT_EQ(edited(text, {{"kind", "fold"},
                          {"box", "model"},
                          {"statements", {0}},
                          {"name", "f"},
                          {"axes", {{"t", nullptr}}}}),
            "axes hidden=4\r\nf t:\r\n  a = tanh(t)  # a\r\n\r\nmodel t f32[batch, hidden]:\r\n"
            "  a = f(t)\r\n  b = gelu(a)");
  // A byte-order mark stays the first of all, also where the first box is on its line.
  const std::string first = "\xef\xbb\xbfmodel t f32[batch]:\n  a = tanh(t)\n  b = gelu(a)\n";
  const Json fold = {{"kind", "fold"}, {"box", "model"}, {"statements", {0}}, {"name", "f"}};
  EXPECT_EQ(edited(first, fold),
            "\xef\xbb\xbf"
            "f t:\n  a = tanh(t)\n\nmodel t f32[batch]:\n  a = f(t)\n  b = gelu(a)\n");
  const std::string noted = with(first, "model t", "# mine\nmodel t");
  EXPECT_TRUE(edited(noted, fold)
                  .starts_with("\xef\xbb\xbf"
                               "f t:\n  a = tanh(t)\n\n# mine\nmodel t"));
  const std::string marked = "\xef\xbb\xbf" + text;
  EXPECT_EQ(edited(marked, {{"kind", "set"}, {"axis", "hidden"}, {"to", "8"}}),
            with(marked, "hidden=4", "hidden=8"));
}

// What another file says is edited there.
TEST(Edit, PiecesOfOtherFilesAreNotEdited) {
  TempFolder folder;
  write_file_atomically(folder / "parts.scheme",
                        "axes hidden=4\nf x:\n  y = tanh(x)\nmodel x:\n  y = x\n");
  const std::string file = (folder / "my.scheme").string();
  const std::string text =
      "# mine\nuse \"parts.scheme\"\naxes vocab=3\nmodel t f32[batch, vocab]:\n  y = f(t)\n";
  EXPECT_EQ(edited(text, {{"kind", "set"}, {"axis", "vocab"}, {"to", "8"}}, file),
            with(text, "vocab=3", "vocab=8"));
  EXPECT_EQ(edited(text, {{"kind", "insert"}, {"at", at(text, "f(t)")}, {"call", "gelu(_)"}}, file),
            with(text, "f(t)", "gelu(f(t))"));
  const std::string elsewhere =
      " is written in " + (folder / "parts.scheme").string() + ", so it is edited there";
  EXPECT_EQ(refusal(text, {{"kind", "set"}, {"axis", "hidden"}, {"to", "8"}}, file),
            "this term" + elsewhere);
  EXPECT_EQ(refusal(text, {{"kind", "rename"}, {"box", "f"}, {"to", "g"}}, file),
            "box 'f'" + elsewhere);
  const Json read = ask(text, {{"kind", "set"}, {"axis", "vocab"}, {"to", "8"}}, file);
  EXPECT_EQ(read["document"]["boxes"][0]["file"], (folder / "parts.scheme").string());
  EXPECT_EQ(read["document"]["boxes"][1]["span"]["from"], text.find("model t"));
}

// What an edit names or writes is one name, one object, one line, and not more of the text.
TEST(Edit, NewNamesAndHeadsAreWhatTheySay) {
  const auto preset = [](const char* to) {
    return refusal(kText, {{"kind", "rename"}, {"preset", "small"}, {"to", to}});
  };
  EXPECT_EQ(preset("tiny-1.5"), "");
  EXPECT_EQ(preset("tiny: layers=7\npreset other"),
            "the edit's 'to' must be a name of a preset, found 'tiny: layers=7\npreset other'");
  EXPECT_NE(preset(""), "");
  EXPECT_NE(preset("a b"), "");
  const auto box = [](const char* formal) {
    return refusal(kText, {{"kind", "add_box"},
                           {"name", "twice"},
                           {"formals", {formal}},
                           {"statements", {"x = x + x"}}});
  };
  EXPECT_EQ(box("x f32[batch, seq, hidden]"), "");
  for (const char* formal : {"x:\n  z = x\nother x", "x, y", "x[batch", "", "3", "x # more"}) {
    EXPECT_TRUE(has(box(formal), "wanted one object as a head has it")) << formal << box(formal);
  }
  const auto axes = [](const Json& said) {
    return refusal(kText, {{"kind", "fold"},
                           {"box", "block"},
                           {"statements", {0, 2}},
                           {"name", "attend"},
                           {"axes", {{"x", said}}}});
  };
  EXPECT_EQ(axes({"batch", "seq", "hidden"}), "");
  EXPECT_TRUE(has(axes({"batch]:\n  y = x\nother x[batch"}), "wanted one object")) << axes("a");
}

// What stands behind a new value would be dropped; a comment may be.
TEST(Edit, ANewValueIsOneTerm) {
  const std::string text =
      "numbers k=2\naxes hidden=8\n"
      "model x f32[batch, hidden]:\n  y = x*k\n";
  const Json set = {{"kind", "set"}, {"number", "k"}};
  const auto to = [&](const std::string& value) {
    Json edit = set;
    edit["to"] = value;
    return edited(text, edit);
  };
  EXPECT_EQ(to(" 3 "), with(text, "k=2", "k=3"));
  EXPECT_NE(to("1\naxes q=3").find("refused: "), std::string::npos);
  EXPECT_NE(to("1 # hi\n  # and\naxes q=3").find("refused: "), std::string::npos);
  EXPECT_EQ(to("3 # hi"), with(text, "k=2", "k=3"));
}

TEST(Edit, RequestsAreRefusedInOneSentence) {
  const auto said = [](const Json& request) { return error_text([&] { answer_edit(request); }); };
  EXPECT_EQ(said(3), "the request must be an object with the name of a 'file'");
  EXPECT_EQ(said({{"file", "a.scheme"}, {"text", 3}}), "the request's 'text' must be a text");
  EXPECT_EQ(said({{"file", "a.scheme"}, {"text", kText}, {"edit", 3}}),
            "the edit must be an object {\"kind\": ...}");
  for (const Json& read : {Json("yes"), Json(1), Json(nullptr), Json::array()}) {
    EXPECT_EQ(said({{"file", "a.scheme"}, {"text", kText}, {"read", read}}),
              "the request's 'read' must be true or false");
  }
  // Whatever a field is, the sentence is ours.
  const Json good = {{"kind", "fold"},
                     {"box", "block"},
                     {"statements", {0, 2}},
                     {"name", "attend"},
                     {"axes", {{"x", {"batch"}}}},
                     {"at", {{"box", "block"}, {"statement", 0}, {"path", {0}}}},
                     {"to", "a"},
                     {"operand", 0},
                     {"after", 0},
                     {"text", "n = x"},
                     {"times", 2},
                     {"value", "x"},
                     {"statement", 0},
                     {"formal", 0},
                     {"keyword", "bias"},
                     {"preset", "small"},
                     {"setting", "hidden"},
                     {"call", "tanh(_)"},
                     {"formals", {"x"}}};
  for (const char* kind : {"insert", "delete", "set", "connect", "repeat", "rename", "fold",
                           "unfold", "add_box", "add_statement"}) {
    for (const auto& [field, value] : good.items()) {
      for (const Json& wrong : {Json(nullptr), Json(true), Json(-3), Json(1e300), Json("\n"),
                                Json::array(), Json::array({Json::object()}), Json::object()}) {
        Json edit = good;
        edit["kind"] = kind;
        edit[field] = wrong;
        try {
          answer_edit({{"file", "a.scheme"}, {"text", kText}, {"edit", edit}});
        } catch (const Error& error) {
          EXPECT_FALSE(has(error.what(), "json.exception")) << edit;
        }
      }
    }
  }
  EXPECT_EQ(refusal(kText, Json::object()), "the edit has no 'kind'");
  EXPECT_TRUE(has(refusal(kText, {{"kind", "renam"}}), "did you mean 'rename'?"));
  EXPECT_EQ(refusal(kText, {{"kind", "insert"}, {"at", {{"from", 1}, {"to", 2}}}, {"call", "_"}}),
            "there is no term from byte 1 to byte 2");
  EXPECT_EQ(refusal(kText, {{"kind", "insert"}, {"at", at(kText, "gelu(n)")}, {"call", "f(x)"}}),
            "the edit's 'call' has no '_' for what was there");
  EXPECT_EQ(refusal("model x:\n  y = \n", {{"kind", "set"}, {"axis", "a"}, {"to", "1"}}),
            "my.scheme:2:7: wanted a name, a number or '(', found the end of the line");
}

}  // namespace
}  // namespace adjoint
