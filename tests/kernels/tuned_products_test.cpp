// The table of tuned products as a file: what it says it reads back, and what is wrong it names.
#include "kernels/cuda/cublaslt/tuned_products.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/temp_folder.h"
#include "kernels/cuda/cublaslt/product_table.h"

namespace adjoint {
namespace {

using nlohmann::json;

TunedProduct tuned(int64_t id, double microseconds) {
  ProductAlgorithm algorithm{.id = id, .tile = 24, .stages = 36, .split_k = 3, .reduction = 2};
  algorithm.cluster_shape = UINT16_MAX;
  algorithm.words = {1, UINT64_MAX, 0, 0x0123456789abcdef};
  return {.algorithm = algorithm, .microseconds = microseconds};
}

TunedProducts table() {
  TunedProducts table;
  table.remember("one", "m=1", tuned(66, 12.5));
  table.remember("one", "m=2", tuned(0, 0.1));
  table.remember("another", "m=1", tuned(INT32_MAX, 1e6));
  return table;
}

TEST(TunedProducts, OthersTakeThePlaceOfItsOwn) {
  TunedProducts others;
  others.remember("one", "m=2", tuned(7, 3));
  others.remember("third", "m=1", tuned(8, 4));
  TunedProducts all = table();
  all.remember(others);
  EXPECT_EQ(all.size(), 4u);
  EXPECT_EQ(all.find("one", "m=1")->algorithm.id, 66);
  EXPECT_EQ(all.find("one", "m=2")->algorithm.id, 7);
  EXPECT_EQ(all.find("third", "m=1")->microseconds, 4);
}

// What reading this says is wrong; empty when nothing is.
std::string refusal(const std::string& text) {
  try {
    TunedProducts::parse(text, "tuned.json");
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}
std::string refusal(const json& all) { return refusal(all.dump()); }

TEST(TunedProducts, FindsByMachineAndProduct) {
  const TunedProducts t = table();
  ASSERT_TRUE(t.find("one", "m=1"));
  EXPECT_EQ(*t.find("one", "m=1"), tuned(66, 12.5));
  EXPECT_EQ(*t.find("another", "m=1"), tuned(INT32_MAX, 1e6));
  EXPECT_FALSE(t.find("another", "m=2"));
  EXPECT_FALSE(t.find("none", "m=1"));
  EXPECT_EQ(t.size(), 3u);
}

TEST(TunedProducts, RemembersTheLast) {
  TunedProducts t = table();
  t.remember("one", "m=1", tuned(7, 3));
  EXPECT_EQ(*t.find("one", "m=1"), tuned(7, 3));
  EXPECT_EQ(t.size(), 3u);
}

TEST(TunedProducts, ReadsWhatItPrints) {
  EXPECT_EQ(TunedProducts::parse(table().text(), ""), table());
  EXPECT_EQ(TunedProducts::parse(TunedProducts().text(), ""), TunedProducts());
  EXPECT_EQ(table().text(), TunedProducts::parse(table().text(), "").text());
}

TEST(TunedProducts, ReadsWhatItWrites) {
  const TempFolder folder;
  const auto path = folder / "products.json";
  table().write(path);
  EXPECT_EQ(TunedProducts::read(path), table());
  std::filesystem::remove(path);
  EXPECT_THROW(TunedProducts::read(path), Error);
}

TEST(TunedProducts, AMachineIsAGpuOfSomeMemory) {
  const std::string machine = product_machine("NVIDIA A100-SXM4-40GB", {42'298'834'944}, 130100);
  EXPECT_EQ(machine, "NVIDIA A100-SXM4-40GB, 42298834944 bytes, cuBLASLt 130100");
  EXPECT_EQ(machine_named(machine).gpu, "NVIDIA A100-SXM4-40GB");
  EXPECT_EQ(machine_named(machine).memory.count, 42'298'834'944);
  EXPECT_EQ(machine_named("something else").gpu, "something else");
  EXPECT_EQ(machine_named("something else").memory.count, 0);
}

TEST(ProductTable, WhatIsBorrowedIsNotKept) {
  const TempFolder folder;
  ASSERT_EQ(setenv("XDG_CACHE_HOME", (folder / "").c_str(), 1), 0);
  const auto file = folder / "adjoint/products.json";
  const auto timed = [](double us) { return TunedProduct{{}, us}; };
  product_table().remember("gpu", "a", timed(1));
  save_product_table();
  const TunedProducts own = TunedProducts::read(file);
  EXPECT_EQ(own.find("gpu", "a")->microseconds, 1);
  TunedProducts others;
  others.remember("gpu", "a", timed(2));
  others.remember("gpu", "b", timed(3));
  borrow_products(others);
  EXPECT_EQ(product_table().find("gpu", "a")->microseconds, 2);
  save_product_table();
  EXPECT_EQ(TunedProducts::read(file), own);
  product_table().remember("gpu", "c", timed(4));
  save_product_table();
  TunedProducts wanted = own;
  wanted.remember("gpu", "c", timed(4));
  EXPECT_EQ(TunedProducts::read(file), wanted);
}

// Processes that learn at the same time lose nothing of each other.
TEST(ProductTable, WhatOthersLearnMeanwhileStays) {
  const TempFolder folder;
  ASSERT_EQ(setenv("XDG_CACHE_HOME", (folder / "").c_str(), 1), 0);
  const auto file = folder / "adjoint/products.json";
  constexpr int processes = 6, rounds = 5;
  std::vector<pid_t> children;
  for (int p = 0; p < processes; ++p) {
    const pid_t child = fork();
    if (child == 0) {
      for (int r = 0; r < rounds; ++r) {
        product_table().remember("gpu", "by " + std::to_string(p) + " " + std::to_string(r),
                                 TunedProduct{{}, 1.0 + p});
        save_product_table();
      }
      _exit(0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  const TunedProducts all = TunedProducts::read(file);
  for (int p = 0; p < processes; ++p) {
    for (int r = 0; r < rounds; ++r) {
      EXPECT_TRUE(all.find("gpu", "by " + std::to_string(p) + " " + std::to_string(r)))
          << p << " " << r;
    }
  }
}

TEST(TunedProducts, SaysAnAlgorithm) {
  EXPECT_EQ(to_string(tuned(66, 1).algorithm),
            "id 66, tile 24, stages 36, split_k 3, reduction 2, swizzle 0, custom 0, "
            "inner_shape 0, cluster_shape 65535");
}

TEST(TunedProducts, RefusesWhatIsNoTable) {
  for (const char* text : {"", "{", "[]", "null", "{}", R"({"format": "adjoint tuned products 2"})",
                           R"({"format": 1, "machines": {}})",
                           R"({"format": "adjoint tuned products 1", "machines": {}})",
                           R"({"format": "adjoint tuned products 2", "machines": []})"}) {
    EXPECT_EQ(refusal(std::string(text)),
              "tuned.json: this is no table of tuned products ('adjoint tuned products 2')")
        << text;
  }
  json all = json::parse(table().text());
  all["machines"]["one"] = 3;
  EXPECT_EQ(refusal(all), "tuned.json: one: wanted an object of products");
}

TEST(TunedProducts, RefusesWrongFields) {
  const json good = json::parse(table().text());
  const auto with = [&](const char* field, const json& value) {
    json all = good;
    all["machines"]["one"]["m=1"][field] = value;
    return refusal(all);
  };
  EXPECT_EQ(refusal(good), "");
  EXPECT_EQ(with("id", -1), "tuned.json: m=1: wanted 'id' from 0 to 2147483647, found -1");
  EXPECT_EQ(with("id", 1u << 31),
            "tuned.json: m=1: wanted 'id' from 0 to 2147483647, found 2147483648");
  EXPECT_EQ(with("tile", "24"),
            "tuned.json: m=1: wanted 'tile' from 0 to 4294967295, found \"24\"");
  EXPECT_EQ(with("tile", 2.5), "tuned.json: m=1: wanted 'tile' from 0 to 4294967295, found 2.5");
  EXPECT_EQ(with("inner_shape", 65536),
            "tuned.json: m=1: wanted 'inner_shape' from 0 to 65535, found 65536");
  EXPECT_EQ(with("microseconds", 0), "tuned.json: m=1: wanted 'microseconds' above 0, found 0");
  EXPECT_EQ(with("microseconds", nullptr),
            "tuned.json: m=1: wanted 'microseconds' above 0, found null");
  EXPECT_EQ(with("words", "12"),
            "tuned.json: m=1: wanted 'words' of 128 hexadecimal digits, found \"12\"");
  EXPECT_NE(with("words", std::string(127, '0') + "g"), "");
  EXPECT_NE(with("words", 5), "");
  EXPECT_NE(with("more", 5), "");
  json all = good;
  all["machines"]["one"]["m=1"].erase("swizzle");
  EXPECT_EQ(refusal(all).rfind("tuned.json: m=1: wanted 'swizzle', found {", 0), 0u);
  all["machines"]["one"]["m=1"] = json::array();
  EXPECT_EQ(refusal(all), "tuned.json: m=1: wanted an object, found []");
}

}  // namespace
}  // namespace adjoint
