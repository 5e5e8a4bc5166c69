#include "data/vocab_table.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace adjoint {

namespace {

std::string shown_token(std::string_view token) {
  return "'" + std::string(token.substr(0, 60)) + "'";
}

}  // namespace

void VocabTable::note(std::string_view token, int64_t id) {
  const auto [place, fresh] = ids_.emplace(token, static_cast<int32_t>(id));
  if (!fresh) fail("the token ", shown_token(token), " is there twice");
  const auto [other, free] = names_.emplace(static_cast<int32_t>(id), place->first);
  if (!free) {
    fail("the tokens ", shown_token(other->second), " and ", shown_token(token),
         " have the same id ", id);
  }
}

void VocabTable::add(const nlohmann::json& vocab) {
  if (!vocab.is_object() || vocab.empty()) fail("its vocabulary is not an object of ids by token");
  ids_.reserve(vocab.size() * 2);
  names_.reserve(vocab.size() * 2);
  for (const auto& [token, id] : vocab.items()) {
    if (!id.is_number_unsigned() || id > INT32_MAX) {
      fail("the token ", shown_token(token), " has no id from 0 on but ",
           id.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).substr(0, 60));
    }
    note(token, id.get<int64_t>());
  }
}

void VocabTable::add_added(const AddedToken& token) {
  if (const auto known = id_of(token.content); known && *known != token.id) {
    fail("the added token ", shown_token(token.content), " has the id ", token.id,
         ", but the vocabulary says ", *known);
  }
  const auto named = names_.find(token.id);
  if (named != names_.end() && named->second != token.content) {
    fail("the added token ", shown_token(token.content), " has the id ", token.id, " of ",
         shown_token(named->second));
  }
  const auto [other, fresh] = added_.emplace(token.id, token.content);
  if (!fresh) {
    fail("the added tokens ", shown_token(other->second), " and ", shown_token(token.content),
         " have the same id ", token.id);
  }
}

std::optional<int32_t> VocabTable::id_of(std::string_view token) const {
  const auto found = ids_.find(std::string(token));
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

Merge VocabTable::merge(std::string_view left, std::string_view right, size_t rank) {
  const auto known = [&](std::string_view token) {
    const auto id = id_of(token);
    if (!id) fail("merge ", rank, " names ", shown_token(token), ", which is no token");
    return *id;
  };
  const int32_t a = known(left), b = known(right);
  return {a, b, known(std::string(left) + std::string(right))};
}

void VocabTable::check_known(int32_t id, const char* who) const {
  if (!names_.count(id) && !added_.count(id))
    fail(who, " names the id ", id, ", which is no token's");
}

void VocabTable::fill(BpeParts& parts) const {
  int64_t size = 0;
  for (const auto& [id, token] : names_) size = std::max<int64_t>(size, id + int64_t{1});
  for (const auto& [id, token] : added_) size = std::max<int64_t>(size, id + int64_t{1});
  const auto num = static_cast<int64_t>(names_.size() + added_.size());
  // Vocabularies have a few free ids, for tokens to come.
  if (size > 4 * num + 4096) {
    fail("it has an id ", size - 1, " for ", num, " tokens, which leaves too many ids free");
  }
  parts.tokens.resize(size);
  for (const auto& [id, token] : names_) {
    if (!parts.byte_level) {
      parts.tokens[id] = token;
    } else if (auto bytes = from_byte_alphabet(token)) {
      parts.tokens[id] = std::move(*bytes);
    } else {
      parts.only_shown.emplace_back(id, token);
    }
  }
}

std::pair<std::string_view, std::string_view> pair_of_line(std::string_view line, size_t rank) {
  const size_t blank = line.find(' ');
  if (blank == line.npos || blank == 0 || blank + 1 == line.size() ||
      line.find(' ', blank + 1) != line.npos) {
    fail("merge ", rank, " is not two tokens with a blank between them but ", shown_token(line));
  }
  return {line.substr(0, blank), line.substr(blank + 1)};
}

}  // namespace adjoint
