extern "C" int Runtime();
extern "C" int Torch() { return Runtime(); }
