// Which products cuBLASLt takes and how they are cut into calls: from shapes, without a GPU.
#include <gtest/gtest.h>

#include "kernels/cuda/cublaslt/product.h"

namespace adjoint {
namespace {

// c[m, n] = a[m, k] b[k, n], all of them dense rows.
Product dense(int64_t m, int64_t n, int64_t k) {
  Product p{.batch = {}, .m = m, .n = n, .k = k, .a_batch = {}, .b_batch = {}, .c_batch = {}};
  p.a_m = k, p.a_k = 1, p.b_k = n, p.b_n = 1, p.c_m = n, p.c_n = 1;
  return p;
}
Product batched(Product p, int64_t size, int64_t a, int64_t b, int64_t c) {
  p.batch.push_back(size), p.a_batch.push_back(a), p.b_batch.push_back(b), p.c_batch.push_back(c);
  return p;
}

TEST(CublasLtProduct, TakesRowsAndColumns) {
  Product p = dense(4, 6, 8);
  ASSERT_TRUE(cublaslt_takes(p));
  p.a_m = 1, p.a_k = 5;  // columns, apart
  p.b_k = 1, p.b_n = 8;
  const auto calls = cublaslt_calls(p);
  ASSERT_TRUE(calls);
  ASSERT_EQ(calls->size(), 1u);
  EXPECT_EQ(calls->at(0).a, (ProductCall::Matrix{.by_rows = false, .leading = 5}));
  EXPECT_EQ(calls->at(0).b, (ProductCall::Matrix{.by_rows = false, .leading = 8}));
  EXPECT_EQ(calls->at(0).c, (ProductCall::Matrix{.by_rows = true, .leading = 6}));
  EXPECT_FALSE(calls->at(0).transposed);
}

TEST(CublasLtProduct, RefusesWhatNoLeadingStrideReaches) {
  Product p = dense(4, 6, 8);
  p.a_k = 2, p.a_m = 16;
  EXPECT_FALSE(cublaslt_takes(p));
  p = dense(4, 6, 8);
  p.b_k = 0;  // one row, stretched
  EXPECT_FALSE(cublaslt_takes(p));
  p = dense(4, 6, 8);
  p.c_m = 5;  // rows that overlap
  EXPECT_FALSE(cublaslt_takes(p));
}

TEST(CublasLtProduct, AnAxisOfOneHasAnyStride) {
  Product p = dense(1, 6, 1);
  p.a_m = 0, p.a_k = 17, p.b_k = 3, p.c_m = 0;
  EXPECT_TRUE(cublaslt_takes(p));
  p = dense(4, 1, 8);
  p.b_n = 5, p.b_k = 3;  // a column, every third element
  p.c_n = 9, p.c_m = 2;
  p.bias = true;
  const auto calls = cublaslt_calls(p);
  ASSERT_TRUE(calls);
  EXPECT_FALSE(calls->at(0).transposed);
  EXPECT_EQ(calls->at(0).c, (ProductCall::Matrix{.leading = 2}));
  EXPECT_EQ(calls->at(0).b.leading, 3);
}

TEST(CublasLtProduct, AColumnwiseResultIsTheTransposedProduct) {
  Product p = dense(4, 6, 8);
  p.c_m = 1, p.c_n = 4;
  p.epilogue = Product::Epilogue::kBiasGradA;
  const auto calls = cublaslt_calls(p);
  ASSERT_TRUE(calls);
  EXPECT_TRUE(calls->at(0).transposed);
  EXPECT_EQ(calls->at(0).m, 6);
  EXPECT_EQ(calls->at(0).n, 4);
  EXPECT_FALSE(calls->at(0).a.by_rows);  // b's columns are its rows
  EXPECT_EQ(calls->at(0).epilogue, Product::Epilogue::kBiasGradB);
  p.epilogue = Product::Epilogue::kNone;
  p.bias = true;  // which lies along the wrong side now
  EXPECT_FALSE(cublaslt_takes(p));
}

TEST(CublasLtProduct, TakesTheDtypesOfTensorCores) {
  const Dtype f32 = Dtype::kF32, bf16 = Dtype::kBF16, f16 = Dtype::kF16;
  const std::vector<std::pair<Dtype, Dtype>> taken = {
      {f32, f32}, {bf16, f32}, {bf16, bf16}, {f16, f32}, {f16, f16}};
  for (const Dtype in : {f32, bf16, f16, Dtype::kF64, Dtype::kI8}) {
    for (const Dtype out : {f32, bf16, f16, Dtype::kF64}) {
      Product p = dense(4, 6, 8);
      p.dtype = in, p.out_dtype = out;
      const bool wanted = std::find(taken.begin(), taken.end(), std::pair(in, out)) != taken.end();
      EXPECT_EQ(cublaslt_takes(p), wanted) << name(in) << " " << name(out);
    }
  }
}

TEST(CublasLtProduct, OneAxisOfABatchIsTheLibrarys) {
  const Product p = batched(batched(dense(4, 6, 8), 3, 1000, 0, 5000), 5, 32, 48, 24);
  const auto calls = cublaslt_calls(p);
  ASSERT_TRUE(calls);
  ASSERT_EQ(calls->size(), 3u);
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(calls->at(i).batch, 5);
    EXPECT_EQ(calls->at(i).a.begin, 1000 * i);
    EXPECT_EQ(calls->at(i).a.to_next, 32);
    EXPECT_EQ(calls->at(i).b.begin, 0);
    EXPECT_EQ(calls->at(i).c.begin, 5000 * i);
    EXPECT_FALSE(calls->at(i).accumulate);
  }
  EXPECT_FALSE(cublaslt_takes(batched(dense(4, 6, 8), 5, 32, 48, 0)));  // all into one c
  EXPECT_FALSE(cublaslt_takes(batched(batched(dense(4, 6, 8), 300, 32, 48, 24), 300, 1, 1, 1)));
}

TEST(CublasLtProduct, SummedStepsAddToTheFirst) {
  Product p = dense(4, 6, 8);
  p.bias = true;
  p.outer = {{2, 500, 0, 700, false}, {3, 50, 60, 0, true}};
  const auto calls = cublaslt_calls(p);
  ASSERT_TRUE(calls);
  ASSERT_EQ(calls->size(), 6u);
  for (int64_t i = 0; i < 6; ++i) {
    const ProductCall& call = calls->at(i);
    EXPECT_EQ(call.accumulate, i % 3 > 0);
    EXPECT_EQ(call.continues, i % 3 > 0);
    EXPECT_EQ(call.bias, i % 3 == 0);
    EXPECT_EQ(call.a.begin, i / 3 * 500 + i % 3 * 50);
    EXPECT_EQ(call.c.begin, i / 3 * 700);
  }
  p.outer[0] = {2, 0, 500, 700, false};  // along n, where the bias would have to step
  EXPECT_FALSE(cublaslt_takes(p));
}

TEST(CublasLtProduct, EpiloguesWantWholeSums) {
  Product p = dense(8, 16, 8);
  p.epilogue = Product::Epilogue::kGelu;
  EXPECT_TRUE(cublaslt_takes(p));
  Product q = p;
  q.accumulate = true;
  EXPECT_FALSE(cublaslt_takes(q));
  q = p;
  q.outer = {{3, 50, 60, 0, true}};
  EXPECT_FALSE(cublaslt_takes(q));
  q = dense(8, 12, 8);  // rows of aux are not at multiples of 8
  q.epilogue = Product::Epilogue::kGeluGrad;
  EXPECT_FALSE(cublaslt_takes(q));
  q = batched(dense(8, 16, 8), 2, 64, 128, 128);
  EXPECT_TRUE(cublaslt_takes(q));
  q.epilogue = Product::Epilogue::kBiasGradA;  // a vector for each matrix
  EXPECT_FALSE(cublaslt_takes(q));
}

TEST(CublasLtProduct, TheKeySaysWhatAnAlgorithmDependsOn) {
  Product p = dense(4, 6, 8);
  p.dtype = Dtype::kBF16;
  p.bias = p.accumulate = true;
  const ProductCall call = cublaslt_calls(p)->at(0);
  EXPECT_EQ(product_key(call),
            "bf16->f32 batch=1 m=4 n=6 k=8 a=rows:8 b=rows:6 c=rows:6 bias accumulate "
            "workspace=1048832 aligned=64,64,64 addend:64 bias:64");
  EXPECT_NE(product_key(call), product_key(call, {.a = 16}));
  const auto two = cublaslt_calls(batched(p, 3, 100, 200, 300));
  EXPECT_NE(product_key(two->at(0)).find("a=rows:8:100 b=rows:6:200"), std::string::npos);
}

TEST(CublasLtProduct, StepsOfOneProductShareAKey) {
  Product p = dense(4, 6, 8);
  p.outer = {{2, 512, 0, 1024, false}};
  const auto calls = cublaslt_calls(p);
  EXPECT_EQ(product_key(calls->at(0)), product_key(calls->at(1)));
}

TEST(CublasLtProduct, TheWorkspaceIsOfTheShapeAndTheCap) {
  EXPECT_LT(product_cuda_workspace(dense(64, 64, 64)), Bytes{2 << 20});
  const Bytes large = product_cuda_workspace(dense(32768, 3072, 768));
  EXPECT_EQ(large, Bytes{(32 << 20) + kWorkspaceAligned});
  Product p = dense(32768, 3072, 768);
  p.workspace_cap = {1000};
  EXPECT_EQ(product_cuda_workspace(p), Bytes{1000});
  EXPECT_EQ(product_cuda_workspace(dense(int64_t{1} << 31, int64_t{1} << 31, 1 << 20)), large);
}

}  // namespace
}  // namespace adjoint
