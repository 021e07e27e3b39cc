package metal

import (
	"fmt"

	"splash/planner"
)

const tableImage = "embedding.bin"

// PlanImages lays out the images that the backend reads: those of the planner, but for the token table, which is planes too,
// so that the kernels of a format read it. A tied model's table is in its head already. Planes are in an image of the name that
// the planner's rows have.
func PlanImages(p *planner.Plan, w planner.Weights) (*planner.ImagePlan, error) {
	inexact, err := planner.InexactBF16(p, w)
	if err != nil {
		return nil, err
	}
	return planImages(p, inexact...)
}

func planImages(p *planner.Plan, inexact ...string) (*planner.ImagePlan, error) {
	all, err := planner.PlanImages(p, inexact...)
	if err != nil {
		return nil, err
	}
	out := new(planner.ImagePlan)
	for _, m := range all.Images {
		if m.Name != tableImage {
			out.Images = append(out.Images, m)
		}
	}
	table := p.Tensor("token_embd.weight")
	if table == nil {
		return nil, fmt.Errorf("metal: the plan has no token table")
	}
	if out.Image("head.bin").Tensor(table.Name) != nil {
		return out, nil
	}
	multiplied := *table
	multiplied.Role = planner.Linear
	alone, err := planner.PlanImages(&planner.Plan{Tensors: []planner.Tensor{multiplied}})
	if err != nil {
		return nil, err
	}
	m := alone.Images[0]
	m.Name, m.Layer, m.Type = tableImage, uint32(p.Layout.Vocab), uint32(p.Layout.Hidden)
	out.Images = append(out.Images, m)
	return out, nil
}
