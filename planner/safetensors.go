package planner

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"splash/dequant"
	"splash/internal/safetensors"
)

// PlanSafetensors checks a target's config.json as CheckConfig does, and plans every tensor its network reads from the
// headers of its checkpoint. The formats of quantized modules are read from their tensors (formats.md 3.2, 4), which must
// be among those the configuration allows.
func PlanSafetensors(config []byte, c *safetensors.Checkpoint) (*Plan, error) {
	p, q, err := checkConfig(config)
	if err != nil {
		return nil, err
	}
	s := &shards{c: c, q: q, faults: faultList{container: "safetensors"}, transformers: usesTransformersNames(c)}
	wants := inventory(&p.Layout)
	p.start(len(wants))
	for i := range wants {
		t, err := s.plan(&wants[i])
		switch {
		case errors.Is(err, errLeftOut):
		case err != nil:
			return nil, err
		default:
			p.add(t)
		}
	}
	return p, s.faults.err()
}

// usesTransformersNames tells the two sets of names apart: an untied checkpoint by its head, a tied one by its token table.
func usesTransformersNames(c *safetensors.Checkpoint) bool {
	for _, name := range [...]string{"lm_head.weight", "lm_head.weight_packed", transformersPrefix + "embed_tokens.weight"} {
		if c.Tensor(name) != nil {
			return true
		}
	}
	return false
}

// errLeftOut says that a tensor was noted as a fault, or is optional and not there.
var errLeftOut = errors.New("planner: a tensor is left out")

// shards finds a target's tensors in its checkpoint.
type shards struct {
	c            *safetensors.Checkpoint
	q            *quantization
	transformers bool
	faults       faultList
}

// A stored is a module as its tensors hold it.
type stored struct {
	kind  dequant.Type
	piece Piece
}

// plan finds the tensors of one want.
func (s *shards) plan(w *want) (Tensor, error) {
	t := Tensor{Name: w.name, Layer: w.layer, Role: w.role, Rows: w.rows, Cols: w.cols, Experts: w.experts}
	if w.expert != "" {
		return s.planExperts(w, t)
	}
	base := s.module(w)
	var m stored
	var err error
	switch w.role {
	case Linear:
		if w.optional && s.c.Tensor(base+".weight") == nil && s.c.Tensor(base+".weight_packed") == nil {
			return t, errLeftOut
		}
		if m, err = s.quantizedModule(w, base, 0); err == nil {
			err = s.allowed(base, m.kind)
		}
	case TokenTable:
		m, err = s.anyModule(w, base, safetensors.BF16)
	case Router, SharedGate, AlphaBeta:
		m, err = s.anyModule(w, base, safetensors.BF16, safetensors.F32)
	default:
		m, err = s.vector(w, base)
		t.Conversion = s.conversion(w)
	}
	t.Type, t.Source = m.kind, []Piece{m.piece}
	return t, err
}

// conversion is what loading does to a vector's values.
func (s *shards) conversion(w *want) Conversion {
	switch {
	case w.role == Decay:
		return NegativeExp
	case w.role == Norm && s.transformers && !w.plain:
		return OnePlus
	}
	return AsStored
}

// module is the want's module in the checkpoint's names.
func (s *shards) module(w *want) string {
	m := module{name: w.module}
	if s.transformers {
		return m.transformers()
	}
	return m.mlx()
}

// fault notes a tensor of the checkpoint.
func (s *shards) fault(w *want, name, cause string) error {
	for _, prefix := range [...]string{transformersPrefix, mlxPrefix} {
		name = strings.TrimPrefix(name, prefix)
	}
	if w.layer >= 0 {
		name = strings.TrimPrefix(name, fmt.Sprintf("layers.%d.", w.layer))
	}
	s.faults.add(name, cause, w.layer)
	return errLeftOut
}

// planExperts plans a stack, or a module of every expert.
func (s *shards) planExperts(w *want, t Tensor) (Tensor, error) {
	m := module{name: w.module, expert: w.expert, experts: w.experts}
	if !s.transformers {
		found, err := s.quantizedModule(w, m.mlx(), w.experts)
		found.piece.Rows = w.experts * w.rows
		t.Type, t.Source = found.kind, []Piece{found.piece}
		return t, err
	}
	t.Source = make([]Piece, w.experts)
	for e := range w.experts {
		name := m.transformersExpert(e)
		found, err := s.quantizedModule(w, name, 0)
		if err == nil {
			err = s.allowed(name, found.kind)
		}
		switch {
		case err != nil:
			return t, err
		case e > 0 && found.kind != t.Type:
			return t, fmt.Errorf("%s is in another format than its layer's first expert", name)
		}
		t.Type, t.Source[e] = found.kind, found.piece
	}
	return t, nil
}

// allowed holds a module's format to the groups of a compressed-tensors configuration that claim it.
func (s *shards) allowed(name string, kind dequant.Type) error {
	if s.q.method != methodCompressed {
		return nil
	}
	claims := s.q.claims(name)
	if len(claims) == 0 {
		return unquantized(name)
	}
	for _, g := range claims {
		if g.format == kind {
			return nil
		}
	}
	return fmt.Errorf("%s is stored as %s, but claimed by %s", name, formatName(kind), groupNames(claims))
}

// groupNames joins config groups with their formats.
func groupNames(groups []*compressedGroup) string {
	names := make([]string, len(groups))
	for i, g := range groups {
		names[i] = fmt.Sprintf("%s (%s)", plain(g.name), formatName(g.format))
	}
	return strings.Join(names, " and ")
}

func formatName(t dequant.Type) string {
	switch t {
	case dequant.NVFP4Rows:
		return "NVFP4"
	case dequant.FP8Rows:
		return "FP8"
	}
	return t.String()
}

// anyModule finds a module that may be quantized or of one of the dtypes.
func (s *shards) anyModule(w *want, base string, accepted ...safetensors.DType) (stored, error) {
	if s.isQuantized(base) {
		return s.quantizedModule(w, base, 0)
	}
	shapes := [][]int64{{int64(w.rows), int64(w.cols)}}
	if w.rows == 1 {
		shapes = append(shapes, []int64{int64(w.cols)})
	}
	return s.floats(w, base+".weight", accepted, shapes...)
}

// isQuantized reports whether a module has tensors that only a quantized one has.
func (s *shards) isQuantized(base string) bool {
	for _, part := range [...]string{".scales", ".weight_scale", ".weight_packed"} {
		if s.c.Tensor(base+part) != nil {
			return true
		}
	}
	return false
}

// floats finds a tensor of one of the dtypes, of one of the shapes.
func (s *shards) floats(w *want, name string, accepted []safetensors.DType, shapes ...[]int64) (stored, error) {
	t := s.c.Tensor(name)
	if t == nil {
		return stored{}, s.fault(w, name, "missing")
	}
	if !slices.Contains(accepted, t.DType) {
		return stored{}, s.fault(w, name, string(t.DType))
	}
	if !slices.ContainsFunc(shapes, func(shape []int64) bool { return slices.Equal(shape, t.Shape) }) {
		return stored{}, wrongShape(t, shapes[0])
	}
	kind := dequant.F32
	if t.DType == safetensors.BF16 {
		kind = dequant.BF16
	}
	return stored{kind, Piece{Name: name, Rows: w.rows}}, nil
}

// vector finds a norm, a convolution or a vector of the GDN heads.
func (s *shards) vector(w *want, base string) (stored, error) {
	name := base + "." + w.part
	n, m := int64(w.rows), int64(w.cols)
	floats := []safetensors.DType{safetensors.BF16, safetensors.F32}
	switch w.role {
	case Convolution: // MLX's and transformers' shapes hold the same bytes
		return s.floats(w, name, floats[:1], []int64{n, m, 1}, []int64{n, 1, m})
	case TimeBias:
		return s.floats(w, name, floats[:1], []int64{m})
	}
	return s.floats(w, name, floats, []int64{m})
}

func wrongShape(t *safetensors.Tensor, want []int64) error {
	return fmt.Errorf("unexpected shape for %s: %s, expected %s", t.Name, extents(t.Shape), extents(want))
}

func extents(shape []int64) string {
	texts := make([]string, len(shape))
	for i, d := range shape {
		texts[i] = fmt.Sprint(d)
	}
	return "[" + strings.Join(texts, ", ") + "]"
}

// quantizedModule reads a module's format from its tensors. experts is the leading extent of a stack, or 0.
func (s *shards) quantizedModule(w *want, base string, experts int) (stored, error) {
	if s.q.method == methodMLX {
		return s.mlxModule(w, base, experts)
	}
	if s.q.method == methodCompressed && s.c.Tensor(base+".weight_packed") != nil {
		return s.nvfp4(w, base, ".weight_packed", ".weight_global_scale", true)
	}
	t := s.c.Tensor(base + ".weight")
	switch {
	case t == nil:
		return stored{}, s.fault(w, base+".weight", "missing")
	case s.c.Tensor(base+".weight_scale") == nil:
		cause := fmt.Sprintf("unquantized %s", t.DType)
		if claims := s.q.claims(base); len(claims) > 0 {
			cause += ", claimed by " + groupNames(claims)
		}
		return stored{}, s.fault(w, base+".weight", cause)
	case t.DType == safetensors.U8 && s.q.method == methodModelOpt:
		return s.nvfp4(w, base, ".weight", ".weight_scale_2", false)
	case t.DType == safetensors.F8E4M3:
		return s.fp8(w, base)
	}
	const loads = "Splash loads NVFP4 (U8 codes) and FP8 (F8_E4M3 values) beside a .weight_scale"
	return stored{}, fmt.Errorf("%s.weight is %s; %s", base, t.DType, loads)
}

// part finds a tensor of a module that must be of the dtype and shape.
func (s *shards) part(w *want, name string, dtype safetensors.DType, shape ...int64) error {
	t := s.c.Tensor(name)
	switch {
	case t == nil:
		return s.fault(w, name, "missing")
	case t.DType != dtype:
		return fmt.Errorf("%s is %s, expected %s", name, t.DType, dtype)
	case !slices.Equal(t.Shape, shape):
		return wrongShape(t, shape)
	}
	return nil
}

// scalar finds a tensor of one F32 value.
func (s *shards) scalar(w *want, name string) error {
	t := s.c.Tensor(name)
	switch {
	case t == nil:
		return s.fault(w, name, "missing")
	case t.DType != safetensors.F32:
		return fmt.Errorf("%s is %s, expected F32", name, t.DType)
	case !isScalar(t.Shape):
		return wrongShape(t, []int64{1})
	}
	return nil
}

func isScalar(shape []int64) bool { return len(shape) == 0 || len(shape) == 1 && shape[0] == 1 }

// nvfp4 finds the tensors of NVFP4 codes: block scales, and the tensor's scale or its reciprocal.
func (s *shards) nvfp4(w *want, base, codes, global string, reciprocal bool) (stored, error) {
	n, k := int64(w.rows), int64(w.cols)
	if k%256 != 0 {
		return stored{}, fmt.Errorf("%s's rows are not whole nvfp4 blocks of 256 elements", base)
	}
	if err := s.part(w, base+codes, safetensors.U8, n, k/2); err != nil {
		return stored{}, err
	}
	if err := s.part(w, base+".weight_scale", safetensors.F8E4M3, n, k/16); err != nil {
		return stored{}, err
	}
	if err := s.scalar(w, base+global); err != nil {
		return stored{}, err
	}
	return stored{dequant.NVFP4Rows, Piece{
		Name: base + codes, Rows: w.rows, Scales: base + ".weight_scale", Global: base + global, GlobalIsReciprocal: reciprocal,
	}}, nil
}

// fp8 finds the tensors of FP8 values: a scale of the tensor, or with compressed-tensors of each row.
func (s *shards) fp8(w *want, base string) (stored, error) {
	n, k := int64(w.rows), int64(w.cols)
	if k%256 != 0 {
		return stored{}, fmt.Errorf("%s's rows are not whole fp8 blocks of 256 elements", base)
	}
	if err := s.part(w, base+".weight", safetensors.F8E4M3, n, k); err != nil {
		return stored{}, err
	}
	scale := s.c.Tensor(base + ".weight_scale")
	compressed := s.q.method == methodCompressed
	switch {
	case scale.DType != safetensors.F32 && !(compressed && scale.DType == safetensors.BF16):
		return stored{}, fmt.Errorf("%s is %s, expected F32", scale.Name, scale.DType)
	case !isScalar(scale.Shape) && !(compressed && slices.Equal(scale.Shape, []int64{n, 1})):
		return stored{}, wrongShape(scale, []int64{1})
	}
	return stored{dequant.FP8Rows, Piece{Name: base + ".weight", Rows: w.rows, Global: scale.Name}}, nil
}

// mlxModule infers an MLX module's format as MLX does: from the words of its codes and the groups of its scales.
func (s *shards) mlxModule(w *want, base string, experts int) (stored, error) {
	weight, scales := s.c.Tensor(base+".weight"), s.c.Tensor(base+".scales")
	switch {
	case weight == nil:
		return stored{}, s.fault(w, base+".weight", "missing")
	case scales == nil:
		return stored{}, s.fault(w, base+".weight", fmt.Sprintf("unquantized %s", weight.DType))
	case weight.DType != safetensors.U32:
		return stored{}, fmt.Errorf("%s is %s, expected U32 beside .scales", weight.Name, weight.DType)
	}
	lead := []int64{int64(w.rows)}
	if experts > 0 {
		lead = []int64{int64(experts), int64(w.rows)}
	}
	words, ok := lastExtent(weight, lead)
	groups, ok2 := lastExtent(scales, lead)
	if !ok {
		return stored{}, wrongShape(weight, append(lead, int64(w.cols)/8))
	}
	if !ok2 {
		return stored{}, wrongShape(scales, append(lead, int64(w.cols)/64))
	}
	kind, err := mlxFormat(base, scales.DType, int64(w.cols), words, groups)
	if err != nil {
		return stored{}, err
	}
	m := stored{kind, Piece{Name: weight.Name, Rows: w.rows, Scales: scales.Name}}
	if scales.DType == safetensors.BF16 {
		m.piece.Biases = base + ".biases"
		err = s.part(w, m.piece.Biases, safetensors.BF16, scales.Shape...)
	}
	return m, err
}

// lastExtent returns the innermost extent of a tensor whose others are lead. A vector's row may stand without its extent.
func lastExtent(t *safetensors.Tensor, lead []int64) (int64, bool) {
	n := len(t.Shape)
	if n != len(lead)+1 || !slices.Equal(t.Shape[:n-1], lead) {
		return 0, false
	}
	return t.Shape[n-1], true
}

// mlxFormat is the format of rows of k weights in so many 32-bit words with so many scales.
func mlxFormat(base string, scales safetensors.DType, k, words, groups int64) (dequant.Type, error) {
	mode := "affine"
	switch scales {
	case safetensors.BF16:
	case safetensors.U8:
		mode = "mxfp4"
	default:
		return 0, fmt.Errorf("%s.scales is %s; scales of MLX weights are BF16 (affine) or U8 (mxfp4, nvfp4)",
			base, scales)
	}
	if groups <= 0 || words <= 0 || k%groups != 0 || 32*words%k != 0 {
		return 0, fmt.Errorf("%s holds %d words and %d scales for rows of %d weights, which is no MLX format",
			base, words, groups, k)
	}
	bits, group := 32*words/k, k/groups
	if mode == "mxfp4" && group == 16 {
		mode = "nvfp4"
	}
	if !mlxLoads(mode, bits, group) {
		return 0, fmt.Errorf("%s is %s %d-bit in groups of %d; %s", base, mode, bits, group, mlxAccepts)
	}
	switch mode {
	case "mxfp4":
		return dequant.MXFP4, nil
	case "nvfp4":
		if k%256 != 0 {
			return 0, fmt.Errorf("%s's rows are not whole nvfp4 blocks of 256 elements", base)
		}
		return dequant.NVFP4Rows, nil
	}
	return dequant.Affine(int(bits), int(group)), nil
}
