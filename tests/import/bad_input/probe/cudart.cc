extern "C" int Runtime() { return 0; }
