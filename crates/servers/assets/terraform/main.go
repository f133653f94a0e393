// A Terraform provider for tests: each thing is a file in a directory. Files beside it, NAME.orders
// with an order in each line, say how the next operations on a thing go:
//
//	slow 30s           wait between the first half of a write and the second
//	fail create        do nothing, and report an error; also update, delete, read
//	half create        do it, and report an error all the same; also update
//	lose               report success, and have nothing to show for it
//	exclusive          refuse to create what is there already
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	providerschema "github.com/hashicorp/terraform-plugin-framework/provider/schema"
	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

func main() {
	options := providerserver.ServeOpts{Address: "mainstay.test/test/things"}
	err := providerserver.Serve(context.Background(), func() provider.Provider { return things{} }, options)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type things struct{}

func (things) Metadata(_ context.Context, _ provider.MetadataRequest, answer *provider.MetadataResponse) {
	answer.TypeName = "things"
}

func (things) Schema(_ context.Context, _ provider.SchemaRequest, answer *provider.SchemaResponse) {
	answer.Schema.Attributes = map[string]providerschema.Attribute{
		"directory": providerschema.StringAttribute{Required: true},
	}
}

func (things) Configure(ctx context.Context, request provider.ConfigureRequest, answer *provider.ConfigureResponse) {
	var directory types.String
	answer.Diagnostics.Append(request.Config.GetAttribute(ctx, path.Root("directory"), &directory)...)
	answer.ResourceData = directory.ValueString()
}

func (things) DataSources(context.Context) []func() datasource.DataSource { return nil }

func (things) Resources(context.Context) []func() resource.Resource {
	return []func() resource.Resource{func() resource.Resource { return &thing{} }}
}

type thing struct{ directory string }

type model struct {
	Name    types.String `tfsdk:"name"`
	Content types.String `tfsdk:"content"`
	ID      types.String `tfsdk:"id"`
}

func (*thing) Metadata(_ context.Context, _ resource.MetadataRequest, answer *resource.MetadataResponse) {
	answer.TypeName = "things_thing"
}

func (*thing) Schema(_ context.Context, _ resource.SchemaRequest, answer *resource.SchemaResponse) {
	stays := []planmodifier.String{stringplanmodifier.UseStateForUnknown()}
	replaces := []planmodifier.String{stringplanmodifier.RequiresReplace()}
	answer.Schema.Attributes = map[string]schema.Attribute{
		"name":    schema.StringAttribute{Required: true, PlanModifiers: replaces},
		"content": schema.StringAttribute{Required: true},
		"id":      schema.StringAttribute{Computed: true, PlanModifiers: stays},
	}
}

func (t *thing) Configure(_ context.Context, request resource.ConfigureRequest, _ *resource.ConfigureResponse) {
	t.directory, _ = request.ProviderData.(string)
}

func (t *thing) file(name string) string { return filepath.Join(t.directory, name) }

// The rest of the line of an order, and whether there is one.
func (t *thing) order(name, order string) (string, bool) {
	text, _ := os.ReadFile(t.file(name + ".orders"))
	for _, line := range strings.Split(string(text), "\n") {
		if rest, ok := strings.CutPrefix(line, order); ok {
			return strings.TrimSpace(rest), true
		}
	}
	return "", false
}

func (t *thing) refused(name, operation string, problems *diag.Diagnostics) bool {
	if _, ordered := t.order(name, "fail "+operation); ordered {
		problems.AddError("as ordered", name+": nothing was done")
	}
	return problems.HasError()
}

// Writes in two halves. Whoever is stopped in between leaves the first.
func (t *thing) write(ctx context.Context, operation string, plan model, problems *diag.Diagnostics) {
	name, content := plan.Name.ValueString(), plan.Content.ValueString()
	if pause, ordered := t.order(name, "slow "); ordered {
		duration, err := time.ParseDuration(pause)
		if err == nil {
			err = os.WriteFile(t.file(name), []byte(content[:len(content)/2]), 0o644)
		}
		if err != nil {
			problems.AddError("cannot begin", err.Error())
			return
		}
		select {
		case <-time.After(duration):
		case <-ctx.Done():
			problems.AddError("interrupted", name+": half of it was written")
			return
		}
	}
	if _, ordered := t.order(name, "lose"); ordered {
		_ = os.Remove(t.file(name))
	} else if err := os.WriteFile(t.file(name), []byte(content), 0o644); err != nil {
		problems.AddError("cannot write", err.Error())
	}
	if _, ordered := t.order(name, "half "+operation); ordered {
		problems.AddError("as ordered", name+": it was done, and failed")
	}
}

func (t *thing) Create(ctx context.Context, request resource.CreateRequest, answer *resource.CreateResponse) {
	var plan model
	answer.Diagnostics.Append(request.Plan.Get(ctx, &plan)...)
	name := plan.Name.ValueString()
	if t.refused(name, "create", &answer.Diagnostics) {
		return
	}
	_, missing := os.Stat(t.file(name))
	if _, ordered := t.order(name, "exclusive"); ordered && missing == nil {
		answer.Diagnostics.AddError("already exists", name+" is there and not ours")
		return
	}
	plan.ID = plan.Name
	t.write(ctx, "create", plan, &answer.Diagnostics)
	// Together with an error this means: there, and not to be trusted.
	answer.Diagnostics.Append(answer.State.Set(ctx, plan)...)
}

func (t *thing) Read(ctx context.Context, request resource.ReadRequest, answer *resource.ReadResponse) {
	var state model
	answer.Diagnostics.Append(request.State.Get(ctx, &state)...)
	if t.refused(state.ID.ValueString(), "read", &answer.Diagnostics) {
		return
	}
	content, err := os.ReadFile(t.file(state.ID.ValueString()))
	if os.IsNotExist(err) {
		answer.State.RemoveResource(ctx)
		return
	}
	if err != nil {
		answer.Diagnostics.AddError("cannot read", err.Error())
		return
	}
	state.Name, state.Content = state.ID, types.StringValue(string(content))
	answer.Diagnostics.Append(answer.State.Set(ctx, state)...)
}

func (t *thing) Update(ctx context.Context, request resource.UpdateRequest, answer *resource.UpdateResponse) {
	var plan model
	answer.Diagnostics.Append(request.Plan.Get(ctx, &plan)...)
	if t.refused(plan.Name.ValueString(), "update", &answer.Diagnostics) {
		return
	}
	t.write(ctx, "update", plan, &answer.Diagnostics)
	answer.Diagnostics.Append(answer.State.Set(ctx, plan)...)
}

func (t *thing) Delete(ctx context.Context, request resource.DeleteRequest, answer *resource.DeleteResponse) {
	var state model
	answer.Diagnostics.Append(request.State.Get(ctx, &state)...)
	if t.refused(state.Name.ValueString(), "delete", &answer.Diagnostics) {
		return
	}
	if err := os.Remove(t.file(state.Name.ValueString())); err != nil && !os.IsNotExist(err) {
		answer.Diagnostics.AddError("cannot delete", err.Error())
	}
}

func (*thing) ImportState(ctx context.Context, request resource.ImportStateRequest, answer *resource.ImportStateResponse) {
	resource.ImportStatePassthroughID(ctx, path.Root("id"), request, answer)
}
