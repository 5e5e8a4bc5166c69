// A vocabulary while it is read: tokens as a file writes them, by id and by text. Ids that lie far
// beyond the number of tokens are refused before a table is made of them.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/bpe_tokenizer.h"

namespace adjoint {

class VocabTable {
 public:
  // {"token": id, ...}; once.
  void add(const nlohmann::json& vocab);
  void add_added(const AddedToken& token);

  std::optional<int32_t> id_of(std::string_view token) const;
  // The merge of two tokens; `rank` is for the sentence that refuses.
  Merge merge(std::string_view left, std::string_view right, size_t rank);
  void check_known(int32_t id, const char* who) const;

  // Makes the tokens of a tokenizer, whose byte_level is known.
  void fill(BpeParts& parts) const;

 private:
  void note(std::string_view token, int64_t id);

  std::unordered_map<std::string, int32_t> ids_;
  std::unordered_map<int32_t, std::string_view> names_;  // views of ids_' keys
  std::unordered_map<int32_t, std::string> added_;
};

// "a b" -> a, b
std::pair<std::string_view, std::string_view> pair_of_line(std::string_view line, size_t rank);

}  // namespace adjoint
