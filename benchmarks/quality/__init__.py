"""How good are restored faces? Run it: ``python benchmarks/quality``; every figure is defined in docs/benchmark_quality.md."""
