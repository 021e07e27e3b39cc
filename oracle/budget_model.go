package oracle

import (
	"math"

	"gonum.org/v1/gonum/mat"
)

// minConfidence keeps the logit of a confidence finite: it is taken of at least this and at most one minus it.
const minConfidence = 0x1p-12

// ConfidenceLogit is ln(c / (1-c)) of a confidence c, which is first clamped to [2^-12, 1 - 2^-12]; ok is false for a c
// that is no probability, NaN above all.
func ConfidenceLogit(c float64) (logit float64, ok bool) {
	if !(c >= 0 && c <= 1) {
		return 0, false
	}
	c = math.Min(math.Max(c, minConfidence), 1-minConfidence)
	return math.Log(c / (1 - c)), true
}

// An AcceptanceModel is the probability that a target accepts proposal j once it accepted those before:
// sigmoid(Slope * logit(confidence) + Intercept[j]).
type AcceptanceModel struct {
	Slope     float64
	Intercept [Proposals]float64
}

// parameters of an AcceptanceModel, as a vector: the slope, then the intercepts.
const parameters = 1 + Proposals

// Prior is the model before any label, and the mean of the normal prior that holds a fit to it (draft.md 9.4).
func Prior() AcceptanceModel {
	m := AcceptanceModel{Slope: 1}
	m.Intercept[0] = -0.35
	for j := 1; j < Proposals; j++ {
		m.Intercept[j] = -0.5
	}
	return m
}

// priorPrecision is the precision of the prior of the slope and of every intercept.
func priorPrecision(k int) float64 {
	if k == 0 {
		return 16
	}
	return 4
}

// Probability is that of accepting proposal j of the confidence, 0 where that is no probability.
func (m *AcceptanceModel) Probability(j int, confidence float64) float64 {
	x, ok := ConfidenceLogit(confidence)
	if !ok {
		return 0
	}
	return Sigmoid(m.Slope*x + m.Intercept[j])
}

// Survival writes the probability that the target accepts proposals 0..j to s[j]: what verifying row j+1 adds to the
// lane's expected tokens.
func (m *AcceptanceModel) Survival(s *[Proposals]float64, confidence []float64) {
	p := 1.0
	for j := range s {
		p *= m.Probability(j, confidence[j])
		s[j] = p
	}
}

// A Label is what became of one proposal that a target accepted or was the first to reject.
type Label struct {
	Proposal int
	Logit    float64 // of its confidence
	Accepted bool
}

// A LabelRing keeps the last MaxLabels labels.
type LabelRing struct {
	labels []Label
	oldest int
}

// MaxLabels is the number of labels that a fit looks at.
const MaxLabels = 4096

// Labels are those kept, in no particular order. The slice is the ring's.
func (r *LabelRing) Labels() []Label { return r.labels }

// Add keeps a label, in place of the oldest when the ring is full.
func (r *LabelRing) Add(l Label) {
	if len(r.labels) < MaxLabels {
		r.labels = append(r.labels, l)
		return
	}
	r.labels[r.oldest] = l
	r.oldest = (r.oldest + 1) % MaxLabels
}

// AddCycle adds a lane's labels: its accepted proposals, and the one that was rejected if any was. Proposals after the
// first rejection, or that were not verified, have none; nor those whose confidence is no probability; and a token that
// stops among the accepted ones, which cuts retained to at most accepted, ends them.
func (r *LabelRing) AddCycle(confidence []float64, verify, accepted, retained int) {
	n := min(accepted, retained)
	for j := range n {
		r.add(j, confidence[j], true)
	}
	if accepted < verify-1 && retained > accepted {
		r.add(accepted, confidence[accepted], false)
	}
}

func (r *LabelRing) add(j int, confidence float64, accepted bool) {
	if x, ok := ConfidenceLogit(confidence); ok {
		r.Add(Label{j, x, accepted})
	}
}

func (m *AcceptanceModel) vector() [parameters]float64 {
	var v [parameters]float64
	v[0] = m.Slope
	copy(v[1:], m.Intercept[:])
	return v
}

func (m *AcceptanceModel) moved(t float64, step *mat.VecDense) AcceptanceModel {
	to := AcceptanceModel{Slope: m.Slope + t*step.AtVec(0)}
	for j := range to.Intercept {
		to.Intercept[j] = m.Intercept[j] + t*step.AtVec(1+j)
	}
	return to
}

// LogPosterior is the logarithm, up to a constant, of the model's posterior: sum over the labels of the log likelihood,
// less 1/2 sum_k tau_k (theta_k - mu_k)^2.
func (m *AcceptanceModel) LogPosterior(labels []Label) float64 {
	var f float64
	for _, l := range labels {
		z := m.Slope*l.Logit + m.Intercept[l.Proposal]
		if l.Accepted {
			z = -z
		}
		f -= Softplus(z) // ln sigmoid(z) = -softplus(-z)
	}
	prior := Prior()
	mu := prior.vector()
	for k, v := range m.vector() {
		f -= priorPrecision(k) / 2 * (v - mu[k]) * (v - mu[k])
	}
	return f
}

// derivatives of the log posterior: its gradient and the negative of its Hessian, which is positive definite.
func (m *AcceptanceModel) derivatives(labels []Label) (*mat.VecDense, *mat.SymDense) {
	g, h := mat.NewVecDense(parameters, nil), mat.NewSymDense(parameters, nil)
	grow := func(i, j int, v float64) { h.SetSym(i, j, h.At(i, j)+v) }
	for _, l := range labels {
		p, k := Sigmoid(m.Slope*l.Logit+m.Intercept[l.Proposal]), 1+l.Proposal
		miss := -p
		if l.Accepted {
			miss = 1 - p
		}
		g.SetVec(0, g.AtVec(0)+miss*l.Logit)
		g.SetVec(k, g.AtVec(k)+miss)
		w := p * (1 - p)
		grow(0, 0, w*l.Logit*l.Logit)
		grow(0, k, w*l.Logit)
		grow(k, k, w)
	}
	prior := Prior()
	mu := prior.vector()
	for k, v := range m.vector() {
		g.SetVec(k, g.AtVec(k)-priorPrecision(k)*(v-mu[k]))
		grow(k, k, priorPrecision(k))
	}
	return g, h
}

// Bounds of a fit.
const (
	maxNewtonSteps = 8
	minDamping     = 1.0 / 32
	newtonDone     = 1e-6
)

// Refit is the model of the largest posterior for the labels, found from m by damped Newton steps: each is halved, down
// to a 32nd, while it would lower the posterior, and the last one moved no parameter by 1e-6. The slope is clamped to
// [0.05, 4], the intercepts to [-6, 6]. A fit that is not finite is dropped: m is returned.
//
// Source: Nocedal and Wright, Numerical Optimization, 2006, 3.3.
func (m AcceptanceModel) Refit(labels []Label) AcceptanceModel {
	fit := m
	for range maxNewtonSteps {
		next, moved := fit.newtonStep(labels)
		fit = next
		if !(moved >= newtonDone) {
			break
		}
	}
	for _, v := range fit.vector() {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return m
		}
	}
	fit.Slope = math.Min(math.Max(fit.Slope, 0.05), 4)
	for j, v := range fit.Intercept {
		fit.Intercept[j] = math.Min(math.Max(v, -6), 6)
	}
	return fit
}

// newtonStep is the model after one step, and the largest move of a parameter: 0 where no step raises the posterior.
func (m *AcceptanceModel) newtonStep(labels []Label) (AcceptanceModel, float64) {
	g, h := m.derivatives(labels)
	var factor mat.Cholesky
	var step mat.VecDense
	if !factor.Factorize(h) || factor.SolveVecTo(&step, g) != nil {
		return *m, 0
	}
	before, t := m.LogPosterior(labels), 1.0
	next := m.moved(t, &step)
	for next.LogPosterior(labels) < before {
		if t <= minDamping {
			return *m, 0
		}
		t /= 2
		next = m.moved(t, &step)
	}
	return next, t * mat.Norm(&step, math.Inf(1))
}
