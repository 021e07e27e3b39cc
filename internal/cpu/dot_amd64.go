package cpu

var dots512 = [4]dotKernels{
	decodedRows: {dot512F32w1r1, dot512F32w4r1, dot512F32w4r4},
	storedF32:   {dot512F32w1r1, dot512F32w4r1, dot512F32w4r4},
	storedF16:   {dot512F16w1r1, dot512F16w4r1, dot512F16w4r4},
	storedBF16:  {dot512BF16w1r1, dot512BF16w4r1, dot512BF16w4r4},
}

var dots256 = [4]dotKernels{
	decodedRows: {dot256F32w1r1, dot256F32w4r1, nil},
	storedF32:   {dot256F32w1r1, dot256F32w4r1, nil},
	storedF16:   {dot256F16w1r1, dot256F16w4r1, nil},
	storedBF16:  {dot256BF16w1r1, dot256BF16w4r1, nil},
}

// streamBytes is the size of rows that are multiplied one by one.
const streamBytes = 4096
